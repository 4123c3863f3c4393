/* Makes one GET request, or another with `method`, by the SDK, and gives all that it is
   answered: status, headers `location` and `x-sent`, body. */
#include "lobster_step.h"

static bool run(const json *args, lobster_input *input, lobster_output *output) {
  (void)input;
  const char *method = json_text(json_get(args, "method"));
  lobster_response *answer = lobster_fetch(&(lobster_request){
      .method = method && *method ? method : "GET",
      .url = json_text(json_get(args, "url")),
  });
  if (!answer) return false;
  static const char *const headers[] = {"location", "x-sent", NULL};
  json_out out = {0};
  json_begin_object(&out);
  json_put_name(&out, "status");
  json_put_number(&out, answer->status);
  for (const char *const *name = headers; *name; name++) {
    const char *value = lobster_response_header(answer, *name);
    if (!value) continue;
    json_put_name(&out, *name);
    json_put_text(&out, value);
  }
  json_put_name(&out, "body");
  json_put_text_n(&out, (const char *)answer->body, answer->length);
  json_end_object(&out);
  lobster_response_free(answer);
  return lobster_emit(output, &out);
}

const lobster_step step = {
    .name = "fetches",
    .version = "0.1.0",
    .summary = "Makes one HTTP request and gives its answer",
    .wants = (const lobster_want[]){{LOBSTER_NET, "", "to make it", false}, {0}},
    .run = run,
};
