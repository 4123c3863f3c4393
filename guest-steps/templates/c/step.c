/* Numbers the lines of its input. */

#include <stdio.h>

#include "lobster_step.h"

void exports_step_describe(step_description_t *ret);

void step_describe(step_description_t *ret) {
    memset(ret, 0, sizeof *ret);
    step_string_dup(&ret->name, "step-name");
    step_string_dup(&ret->version, "0.1.0");
    step_string_dup(&ret->summary, "Numbers lines");
    step_string_dup(&ret->args_schema, "{\"type\":\"object\",\"additionalProperties\":false}");
    /* No input-schema and no output-schema: the step takes and gives bytes. */
    ret->limits.fuel.is_some = true;
    ret->limits.fuel.val = 1000000000;
}

bool step_run(step_string_t *args, step_own_input_t input, step_own_output_t output, step_step_error_t *err) {
    (void)args;
    uint8_t *text;
    size_t length;
    if (!lobster_read_all(input, &text, &length, err)) {
        return false;
    }
    size_t line = 0;
    for (size_t start = 0; start < length;) {
        uint8_t *end = memchr(text + start, '\n', length - start);
        size_t stop = end == NULL ? length : (size_t)(end - text) + 1;
        char number[24];
        int digits = snprintf(number, sizeof number, "%zu ", ++line);
        if (!lobster_write(output, (uint8_t *)number, (size_t)digits, err) ||
            !lobster_write(output, text + start, stop - start, err)) {
            free(text);
            return false;
        }
        start = stop;
    }
    free(text);
    return true;
}
