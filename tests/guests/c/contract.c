/* A step that uses all of the SDK, for good and, if it is told to, for bad. */
#include <stdlib.h>
#include <string.h>

#include "lobster_step.h"

/* Gives every item as it was read, and says in the log what it saw. */
static bool copy(lobster_input *input, lobster_output *output) {
  json_out out = {0};
  json *item;
  uint64_t done = 0;
  while ((item = lobster_next(input))) {
    json_put(&out, item);
    lobster_emit(output, &out);
    json_free(item);
    lobster_progress(++done, 0, NULL);
  }
  json_out_free(&out);
  return true;
}

/* Bytes through a blob and back. */
static bool blob(lobster_input *input, lobster_output *output) {
  char bytes[4096];
  size_t length;
  lobster_blob *to = lobster_blob_new();
  while ((length = lobster_read(input, bytes, sizeof bytes))) lobster_blob_write(to, bytes, length);
  char *digest = lobster_blob_finish(to);
  if (!digest) return false;
  lobster_log(LOBSTER_INFO, digest, "{\"where\":\"blob\"}");
  lobster_blob *from = lobster_blob_open(digest);
  free(digest);
  if (!from) return false;
  while ((length = lobster_blob_read(from, bytes, sizeof bytes))) lobster_write(output, bytes, length);
  lobster_blob_close(from);
  return true;
}

static bool state(lobster_output *output) {
  json *seen = lobster_state_get("seen");
  json_out out = {0};
  json_begin_object(&out);
  json_put_name(&out, "before");
  json_put(&out, seen);
  json_put_name(&out, "half");
  json_put_number(&out, json_number(seen, 1) / 2);
  json_end_object(&out);
  lobster_emit(output, &out);
  json_free(seen);
  lobster_state_set("seen", "3");
  return true;
}

static bool run(const json *args, lobster_input *input, lobster_output *output) {
  const char *what = json_text(json_get(args, "do"));
  if (!what) return lobster_fail("bad-args", "say what to do");
  if (!strcmp(what, "copy")) return copy(input, output);
  if (!strcmp(what, "blob")) return blob(input, output);
  if (!strcmp(what, "state")) return state(output);
  if (!strcmp(what, "fail")) {
    lobster_retryable();
    return lobster_failf("busy", "try again in %d s", 5);
  }
  if (!strcmp(what, "silent")) return false;
  json_out out = {0};
  if (!strcmp(what, "lie")) {
    /* Its output schema says number. */
    json_put_text(&out, "no number");
    return lobster_emit(output, &out);
  }
  if (!strcmp(what, "mix")) {
    lobster_write(output, "x", 1);
    json_put_null(&out);
    lobster_emit(output, &out);
    return true;
  }
  if (!strcmp(what, "broken")) {
    out = (json_out){.text = strdup("{\"a\":"), .length = 5};
    lobster_emit(output, &out);
    return true;
  }
  if (!strcmp(what, "state-not-json")) {
    lobster_state_set("x", "{");
    return true;
  }
  if (!strcmp(what, "blob-of-others"))
    return lobster_blob_open("0000000000000000000000000000000000000000000000000000000000000000") != NULL;
  if (!strcmp(what, "handles"))
    for (;;) lobster_blob_new();
  return lobster_failf("bad-args", "what is %s?", what);
}

const lobster_step step = {
    .name = "contract",
    .version = "1.0.0",
    .summary = "Uses all of the SDK",
    .args = "{\"type\":\"object\",\"required\":[\"do\"],\"additionalProperties\":false,"
            "\"properties\":{\"do\":{\"type\":\"string\"}}}",
#ifdef LIES
    .output = "{\"type\":\"number\"}",
#endif
    .wants = (const lobster_want[]){{LOBSTER_READ, "/data", "nothing, really", true},
                                    {LOBSTER_CLOCK, NULL, "to be late", true},
                                    {0}},
    .examples = (const lobster_example[]){{"Copies", "{\"do\":\"copy\"}", "[1]", "[1]"}, {0}},
    .fuel = 500000000,
    .run = run,
};
