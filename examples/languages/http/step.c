/* Reads a URL, and posts to it. */
#include <string.h>

#include "lobster_step.h"

/* Puts "ü" into a body. */
#define TIMES 5000

static bool told(lobster_output *output, const lobster_response *answer, bool whole) {
  json_out out = {0};
  json_begin_object(&out);
  json_put_name(&out, "status");
  json_put_number(&out, answer->status);
  if (whole) {
    json_put_name(&out, "type");
    json_put_text(&out, lobster_response_header(answer, "content-type"));
    json_put_name(&out, "text");
    json_put_text_n(&out, (const char *)answer->body, answer->length);
  }
  json_end_object(&out);
  return lobster_emit(output, &out);
}

static bool run(const json *args, lobster_input *input, lobster_output *output) {
  (void)input;
  const char *url = json_text(json_get(args, "url"));
  lobster_header headers[] = {{"x-from", "c"}, {NULL, NULL}};
  lobster_response *answer = lobster_fetch(&(lobster_request){.url = url, .headers = headers});
  if (!answer) return false;
  told(output, answer, true);
  lobster_response_free(answer);

  static char body[2 * TIMES + 1];
  for (int i = 0; i < TIMES; i++) memcpy(body + 2 * i, "ü", 2);
  answer = lobster_fetch(&(lobster_request){.method = "POST", .url = url, .body = body, .length = 2 * TIMES});
  if (!answer) return false;
  told(output, answer, false);
  lobster_response_free(answer);
  return true;
}

const lobster_step step = {
    .name = "fetch",
    .version = "0.1.0",
    .summary = "Reads a URL, and posts to it",
    .args = "{\"type\": \"object\", \"required\": [\"url\"], \"properties\": {\"url\": {\"type\": \"string\"}}}",
    .output = "{}",
    .wants = (const lobster_want[]){{LOBSTER_NET, "", "to read the URL", false}, {0}},
    .run = run,
};
