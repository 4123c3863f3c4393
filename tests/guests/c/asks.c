/* Makes one HTTP request by the SDK: `method`, `url`, `name` and `value` of a header, `body`,
   `timeout`. Gives the status, the header `x-kind` and how long the body is. */
#include "lobster_step.h"

#include <string.h>

static bool run(const json *args, lobster_input *input, lobster_output *output) {
  (void)input;
  lobster_header headers[] = {{json_text(json_get(args, "name")), json_text(json_get(args, "value"))}, {NULL, NULL}};
  const json *body = json_get(args, "body");
  lobster_response *answer = lobster_fetch(&(lobster_request){
      .method = json_text(json_get(args, "method")),
      .url = json_text(json_get(args, "url")),
      .headers = headers,
      .body = json_text(body),
      .length = json_length(body),
      .timeout_ms = (uint32_t)json_number(json_get(args, "timeout"), 0),
  });
  if (!answer) return false;
  const char *kind = lobster_response_header(answer, "x-kind");
  json_out out = {0};
  json_begin_object(&out);
  json_put_name(&out, "status");
  json_put_number(&out, answer->status);
  json_put_name(&out, "kind");
  json_put_text(&out, kind ? kind : "");
  json_put_name(&out, "bytes");
  json_put_number(&out, (double)answer->length);
  json_end_object(&out);
  lobster_response_free(answer);
  return lobster_emit(output, &out);
}

const lobster_step step = {
    .name = "asks",
    .version = "0.1.0",
    .summary = "Makes one HTTP request",
    .wants = (const lobster_want[]){{LOBSTER_NET, "", "to make it", false}, {0}},
    .run = run,
};
