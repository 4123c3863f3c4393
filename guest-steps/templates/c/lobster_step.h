/* What one writes again and again over the generated bindings: read all, write
   all, fail. It is part of your project: change it if you need to. */
#ifndef LOBSTER_STEP_H
#define LOBSTER_STEP_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "gen/step.h"

/* Bytes moved in one call. */
#define LOBSTER_CHUNK 65536u

/* Fills in the error that `run` gives and returns false, so that one can write
   `return lobster_fail(err, "bad-input", "…");`. */
static inline bool lobster_fail(step_step_error_t *err, const char *code, const char *message) {
    step_string_dup(&err->code, code);
    step_string_dup(&err->message, message);
    err->retryable = false;
    return false;
}

/* Passes on what the host said to a read or a write. */
static inline bool lobster_stream_fail(step_step_error_t *err, lobster_step_io_stream_error_t *said) {
    err->code = said->code;
    err->message = said->message;
    err->retryable = false;
    return false;
}

/* Reads the whole input; items come as JSON Lines. The caller frees `*bytes`. */
static inline bool lobster_read_all(step_own_input_t input, uint8_t **bytes, size_t *length, step_step_error_t *err) {
    lobster_step_io_borrow_input_t in = lobster_step_io_borrow_input(input);
    uint8_t *all = NULL;
    size_t used = 0;
    for (;;) {
        step_list_u8_t chunk;
        lobster_step_io_stream_error_t said;
        if (!lobster_step_io_method_input_read(in, LOBSTER_CHUNK, &chunk, &said)) {
            free(all);
            return lobster_stream_fail(err, &said);
        }
        if (chunk.len == 0) {
            step_list_u8_free(&chunk);
            break;
        }
        uint8_t *more = realloc(all, used + chunk.len);
        if (more == NULL) {
            free(all);
            step_list_u8_free(&chunk);
            return lobster_fail(err, "out-of-memory", "the input does not fit the memory of the step");
        }
        all = more;
        memcpy(all + used, chunk.ptr, chunk.len);
        used += chunk.len;
        step_list_u8_free(&chunk);
    }
    *bytes = all;
    *length = used;
    return true;
}

/* Writes bytes onto the output. */
static inline bool lobster_write(step_own_output_t output, const uint8_t *bytes, size_t length, step_step_error_t *err) {
    lobster_step_io_borrow_output_t out = lobster_step_io_borrow_output(output);
    for (size_t at = 0; at < length; at += LOBSTER_CHUNK) {
        size_t part = length - at < LOBSTER_CHUNK ? length - at : LOBSTER_CHUNK;
        step_list_u8_t chunk = {(uint8_t *)bytes + at, part};
        lobster_step_io_stream_error_t said;
        if (!lobster_step_io_method_output_write(out, &chunk, &said)) {
            return lobster_stream_fail(err, &said);
        }
    }
    return true;
}

#endif
