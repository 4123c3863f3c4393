/* Greets people. */

#include "lobster_step.h"

static bool run(const json *args, lobster_input *input, lobster_output *output) {
  const char *given = json_text(json_get(args, "greeting"));
  const char *greeting = given ? given : "Hello";
  json_out out = {0};
  json *person;
  while ((person = lobster_next(input))) {
    const char *name = json_text(json_get(person, "name"));
    if (!name || !*name) return lobster_fail("bad-input", "a person has no name");
    json_begin_object(&out);
    json_put_name(&out, "text");
    json_begin_text(&out);
    json_add_text(&out, greeting);
    json_add_text(&out, " ");
    json_add_text(&out, name);
    json_add_text(&out, "!");
    json_end_text(&out);
    json_end_object(&out);
    lobster_emit(output, &out);
    json_free(person);
  }
  return true;
}

const lobster_step step = {
    .name = "step-name",
    .version = "0.1.0",
    .summary = "Greets people",
    .args = "{\"type\":\"object\",\"additionalProperties\":false,\"properties\":{\"greeting\":"
            "{\"type\":\"string\",\"default\":\"Hello\",\"description\":\"The word before the name.\"}}}",
    .input = "{\"type\":\"object\",\"required\":[\"name\"],\"properties\":{\"name\":{\"type\":\"string\"}}}",
    .output = "{\"type\":\"object\",\"properties\":{\"text\":{\"type\":\"string\"}}}",
    .run = run,
};
