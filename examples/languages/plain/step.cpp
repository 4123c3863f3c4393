// A step without an SDK: what `wit-bindgen c` writes for wit/step.wit, and two functions.
#include <stdio.h>
#include "gen/step.h"

extern "C" void exports_step_describe(step_description_t *step) {
  *step = step_description_t{};
  step_string_dup(&step->name, "size");
  step_string_dup(&step->version, "1.0.0");
  step_string_dup(&step->summary, "Counts the bytes of its input");
  step_string_dup(&step->args_schema, R"({"type": "object", "additionalProperties": false})");
}

extern "C" bool exports_step_run(step_string_t *, step_own_input_t input, step_own_output_t output,
                                 step_step_error_t *error) {
  auto in = lobster_step_io_borrow_input(input);
  auto out = lobster_step_io_borrow_output(output);
  unsigned long long bytes = 0;
  step_list_u8_t part;
  lobster_step_io_stream_error_t why;
  while (lobster_step_io_method_input_read(in, 65536, &part, &why)) {
    bytes += part.len;
    bool ended = part.len == 0;
    step_list_u8_free(&part);
    if (!ended) continue;
    char text[64];
    step_string_t item;
    snprintf(text, sizeof text, "{\"bytes\": %llu}", bytes);
    step_string_set(&item, text);
    step_list_string_t items{&item, 1};
    if (lobster_step_io_method_output_emit(out, &items, &why)) return true;
    break;
  }
  *error = step_step_error_t{why.code, why.message, false};
  return false;
}
