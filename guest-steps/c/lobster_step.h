/* The contract lobster:step, wrapped for C. It is part of your project: change it
   if you need to. What wit-bindgen made of the contract is in gen/, and nothing
   here keeps you from calling it.

   A step defines `step` and its `run`:

     static bool run(const json *args, lobster_input *input, lobster_output *output) {
       json *item;
       while ((item = lobster_next(input))) {
         ...
         lobster_emit(output, &out);
         json_free(item);
       }
       return true;
     }
     const lobster_step step = {.name = "scale", ..., .run = run}; */
#ifndef LOBSTER_STEP_H
#define LOBSTER_STEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "json.h"

typedef struct lobster_input lobster_input;
typedef struct lobster_output lobster_output;

typedef enum {
  LOBSTER_READ,
  LOBSTER_WRITE,
  LOBSTER_ENV,
  LOBSTER_NET,
  LOBSTER_CLOCK,
  LOBSTER_RANDOM
} lobster_capability;

/* A grant that the step asks for, and why. Asking grants nothing. */
typedef struct {
  lobster_capability capability;
  /* The guest path, variable or host:port; NULL for the clock and randomness. */
  const char *what;
  const char *reason;
  bool optional;
} lobster_want;

typedef struct {
  const char *summary;
  /* JSON. */
  const char *args;
  /* JSON items or text, or NULL. */
  const char *input;
  const char *output;
} lobster_example;

/* What a step is. All texts are constants: the host may ask at any time. */
typedef struct {
  const char *name;
  const char *version;
  /* One line. */
  const char *summary;
  /* JSON Schema of the arguments; the host checks them before `run`. */
  const char *args;
  /* JSON Schemas of one item; NULL for bytes or none. */
  const char *input;
  const char *output;
  /* Ends with one whose reason is NULL; NULL for none. */
  const lobster_want *wants;
  /* Ends with one whose summary is NULL; NULL for none. */
  const lobster_example *examples;
  /* What the step was made for; 0 leaves it to the host. */
  uint64_t fuel;
  uint64_t memory;
  uint64_t output_bytes;
  uint64_t timeout_ms;
  /* Does the work; false if it failed, after lobster_fail. */
  bool (*run)(const json *args, lobster_input *input, lobster_output *output);
} lobster_step;

/* Yours. */
extern const lobster_step step;

/* Says why the step fails: a code for programs, words joined by dashes, and one
   sentence for people. Only the first failure counts. Gives false, so that
   `return lobster_fail(...)` leaves `run`. */
bool lobster_fail(const char *code, const char *message);
/* The sentence as for printf. It brings stdio into the program, 20 KB and some
   imports of WASI that nothing has to grant. */
bool lobster_failf(const char *code, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Says that the same call may succeed later: call it before or after lobster_fail. */
void lobster_retryable(void);

/* If the host refuses something (a limit, a broken stream), the step has failed
   with the host's own words, whatever `run` gives; the functions then give NULL
   or false and do nothing. */

typedef enum { LOBSTER_EMPTY, LOBSTER_BYTES, LOBSTER_ITEMS } lobster_payload;

/* Nothing at all is not the same as no items. */
lobster_payload lobster_kind(lobster_input *input);
/* The next item, or NULL at the end. Free it with json_free. Bytes are one text item. */
json *lobster_next(lobster_input *input);
/* Up to `room` bytes; 0 at the end. Items come as JSON Lines. */
size_t lobster_read(lobster_input *input, void *to, size_t room);

/* Gives one item and empties `item`. A step gives items or bytes, not both. */
bool lobster_emit(lobster_output *output, json_out *item);
/* Gives bytes. */
bool lobster_write(lobster_output *output, const void *bytes, size_t length);

typedef enum { LOBSTER_TRACE, LOBSTER_DEBUG, LOBSTER_INFO, LOBSTER_WARN, LOBSTER_ERROR } lobster_level;

/* A line in the step's log. `fields` is a JSON object or NULL. */
void lobster_log(lobster_level level, const char *message, const char *fields);
/* How far the step is; a total of 0 is not known, a message may be NULL. */
void lobster_progress(uint64_t done, uint64_t total, const char *message);
/* What an earlier step or call of this run kept, or NULL. Free it with json_free. */
json *lobster_state_get(const char *key);
/* Keeps a value (JSON) for the rest of the run. */
void lobster_state_set(const char *key, const char *value);

/* Data of the store, larger than memory. */
typedef struct lobster_blob lobster_blob;

/* Opens a blob by its digest; NULL if it cannot be read, and the step has failed. */
lobster_blob *lobster_blob_open(const char *digest);
uint64_t lobster_blob_size(lobster_blob *blob);
/* Up to `room` bytes; 0 at the end. */
size_t lobster_blob_read(lobster_blob *blob, void *to, size_t room);
void lobster_blob_close(lobster_blob *blob);

lobster_blob *lobster_blob_new(void);
bool lobster_blob_write(lobster_blob *blob, const void *bytes, size_t length);
/* Closes it; gives its digest, which you free, or NULL. */
char *lobster_blob_finish(lobster_blob *blob);

typedef struct {
  const char *name;
  const char *value;
} lobster_header;

/* What is asked of a host that the step is granted. */
typedef struct {
  /* NULL is GET. */
  const char *method;
  const char *url;
  /* Ends with one whose name is NULL; NULL for none. */
  const lobster_header *headers;
  const void *body;
  size_t length;
  /* How long the connection, and then the beginning of the answer, may take; 0 as long as the step. */
  uint32_t timeout_ms;
} lobster_request;

/* What the host answered, whole. */
typedef struct {
  int status;
  /* Names in lower case; ends with one whose name is NULL. */
  const lobster_header *headers;
  const uint8_t *body;
  size_t length;
} lobster_response;

/* Makes one HTTP request and waits for the whole answer, of any status. Redirects are
   not followed. Free it with lobster_response_free. NULL if the request was refused or
   failed, and the step has failed with `http`. */
lobster_response *lobster_fetch(const lobster_request *request);
/* The first header of that name, or NULL. */
const char *lobster_response_header(const lobster_response *response, const char *name);
void lobster_response_free(lobster_response *response);

#endif
