#include "lobster_step.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "texts.h"

/* A call into the host costs more than an item. */
#define AT_ONCE 64

struct lobster_input {
  lobster_step_io_borrow_input_t host;
  step_list_string_t items;
  size_t next;
};

struct lobster_output {
  lobster_step_io_borrow_output_t host;
  step_string_t items[AT_ONCE];
  size_t count;
};

struct lobster_blob {
  bool writes;
  lobster_step_host_own_blob_reader_t reader;
  lobster_step_host_own_blob_writer_t writer;
};

/* An instance runs once, so there is one failure: the first. */
static struct {
  bool happened;
  step_step_error_t error;
} failure;

/* A copy that the bindings free once the host has it. */
static step_string_t owned(const char *text) {
  step_string_t copy;
  step_string_dup(&copy, text ? text : "");
  return copy;
}

static step_option_string_t optional(const char *text) {
  return text ? (step_option_string_t){.is_some = true, .val = owned(text)} : (step_option_string_t){0};
}

bool lobster_fail(const char *code, const char *message) {
  if (failure.happened) return false;
  failure.happened = true;
  failure.error.code = owned(code);
  failure.error.message = owned(message);
  return false;
}

bool lobster_failf(const char *code, const char *format, ...) {
  va_list values, again;
  va_start(values, format);
  va_copy(again, values);
  int length = vsnprintf(NULL, 0, format, values);
  char *message = length < 0 ? NULL : malloc((size_t)length + 1);
  if (!message) abort();
  vsnprintf(message, (size_t)length + 1, format, again);
  va_end(again);
  va_end(values);
  lobster_fail(code, message);
  free(message);
  return false;
}

void lobster_retryable(void) { failure.error.retryable = true; }

/* Takes over a refusal of the host. */
static bool refused(step_string_t code, step_string_t message) {
  if (failure.happened) {
    step_string_free(&code);
    step_string_free(&message);
    return false;
  }
  failure.happened = true;
  failure.error.code = code;
  failure.error.message = message;
  return false;
}

static size_t copied(void *to, step_list_u8_t bytes) {
  memcpy(to, bytes.ptr, bytes.len);
  size_t length = bytes.len;
  step_list_u8_free(&bytes);
  return length;
}

static uint32_t at_most(size_t room) { return room > UINT32_MAX ? UINT32_MAX : (uint32_t)room; }

lobster_payload lobster_kind(lobster_input *input) {
  return (lobster_payload)lobster_step_io_method_input_payload(input->host);
}

json *lobster_next(lobster_input *input) {
  if (failure.happened) return NULL;
  if (input->next == input->items.len) {
    lobster_step_io_stream_error_t error;
    free(input->items.ptr);
    input->items = (step_list_string_t){0};
    input->next = 0;
    if (!lobster_step_io_method_input_next(input->host, AT_ONCE, &input->items, &error)) {
      refused(error.code, error.message);
      return NULL;
    }
    if (!input->items.len) return NULL;
  }
  step_string_t text = input->items.ptr[input->next++];
  const char *why = NULL;
  json *item = json_parse((const char *)text.ptr, text.len, &why);
  step_string_free(&text);
  if (!item) lobster_fail("bad-input", why);
  return item;
}

size_t lobster_read(lobster_input *input, void *to, size_t room) {
  step_list_u8_t bytes;
  lobster_step_io_stream_error_t error;
  if (failure.happened) return 0;
  if (lobster_step_io_method_input_read(input->host, at_most(room), &bytes, &error)) return copied(to, bytes);
  refused(error.code, error.message);
  return 0;
}

static bool flush(lobster_output *output) {
  lobster_step_io_stream_error_t error;
  step_list_string_t items = {.ptr = output->items, .len = output->count};
  bool good = failure.happened || !output->count || lobster_step_io_method_output_emit(output->host, &items, &error);
  for (size_t i = 0; i < output->count; i++) step_string_free(&output->items[i]);
  output->count = 0;
  return good ? !failure.happened : refused(error.code, error.message);
}

bool lobster_emit(lobster_output *output, json_out *item) {
  if (failure.happened) return false;
  step_string_dup_n(&output->items[output->count++], item->text ? item->text : "", item->length);
  json_out_clear(item);
  return output->count < AT_ONCE || flush(output);
}

bool lobster_write(lobster_output *output, const void *bytes, size_t length) {
  step_list_u8_t list = {.ptr = (uint8_t *)bytes, .len = length};
  lobster_step_io_stream_error_t error;
  if (failure.happened) return false;
  if (lobster_step_io_method_output_write(output->host, &list, &error)) return true;
  return refused(error.code, error.message);
}

void lobster_log(lobster_level level, const char *message, const char *fields) {
  step_string_t text = borrowed(message), more = borrowed(fields);
  lobster_step_host_log((lobster_step_host_level_t)level, &text, &more);
}

void lobster_progress(uint64_t done, uint64_t total, const char *message) {
  step_string_t text = borrowed(message);
  lobster_step_host_progress(done, total ? &total : NULL, message ? &text : NULL);
}

json *lobster_state_get(const char *key) {
  step_string_t name = borrowed(key), value;
  if (!lobster_step_host_state_get(&name, &value)) return NULL;
  json *kept = json_parse((const char *)value.ptr, value.len, NULL);
  step_string_free(&value);
  return kept;
}

void lobster_state_set(const char *key, const char *value) {
  step_string_t name = borrowed(key), text = borrowed(value);
  lobster_step_host_state_set(&name, &text);
}

static lobster_blob *boxed(lobster_blob blob) {
  lobster_blob *made = malloc(sizeof blob);
  if (!made) abort();
  *made = blob;
  return made;
}

lobster_blob *lobster_blob_open(const char *digest) {
  step_string_t name = borrowed(digest);
  lobster_blob blob = {0};
  lobster_step_host_blob_error_t error;
  if (lobster_step_host_static_blob_reader_open(&name, &blob.reader, &error)) return boxed(blob);
  refused(error.code, error.message);
  return NULL;
}

uint64_t lobster_blob_size(lobster_blob *blob) {
  return lobster_step_host_method_blob_reader_size(lobster_step_host_borrow_blob_reader(blob->reader));
}

size_t lobster_blob_read(lobster_blob *blob, void *to, size_t room) {
  step_list_u8_t bytes;
  lobster_step_host_blob_error_t error;
  lobster_step_host_borrow_blob_reader_t reader = lobster_step_host_borrow_blob_reader(blob->reader);
  if (lobster_step_host_method_blob_reader_read(reader, at_most(room), &bytes, &error)) return copied(to, bytes);
  refused(error.code, error.message);
  return 0;
}

void lobster_blob_close(lobster_blob *blob) {
  if (!blob) return;
  if (blob->writes) lobster_step_host_blob_writer_drop_own(blob->writer);
  else lobster_step_host_blob_reader_drop_own(blob->reader);
  free(blob);
}

lobster_blob *lobster_blob_new(void) {
  return boxed((lobster_blob){.writes = true, .writer = lobster_step_host_constructor_blob_writer()});
}

bool lobster_blob_write(lobster_blob *blob, const void *bytes, size_t length) {
  step_list_u8_t list = {.ptr = (uint8_t *)bytes, .len = length};
  lobster_step_host_blob_error_t error;
  lobster_step_host_borrow_blob_writer_t writer = lobster_step_host_borrow_blob_writer(blob->writer);
  if (lobster_step_host_method_blob_writer_write(writer, &list, &error)) return true;
  return refused(error.code, error.message);
}

char *lobster_blob_finish(lobster_blob *blob) {
  step_string_t digest;
  lobster_step_host_blob_error_t error;
  bool good = lobster_step_host_static_blob_writer_finish(blob->writer, &digest, &error);
  free(blob);
  if (!good) {
    refused(error.code, error.message);
    return NULL;
  }
  return taken(digest);
}

static step_option_u64_t limit(uint64_t value) { return (step_option_u64_t){.is_some = value, .val = value}; }

static lobster_step_types_list_want_t wants(void) {
  size_t count = 0;
  while (step.wants && step.wants[count].reason) count++;
  lobster_step_types_want_t *list = count ? calloc(count, sizeof *list) : NULL;
  if (count && !list) abort();
  for (size_t i = 0; i < count; i++) {
    const lobster_want *want = &step.wants[i];
    list[i].capability.tag = (uint8_t)want->capability;
    /* The cases that carry a text lie at the same place. */
    if (want->capability <= LOBSTER_NET) list[i].capability.val.read = owned(want->what);
    list[i].reason = owned(want->reason);
    list[i].optional = want->optional;
  }
  return (lobster_step_types_list_want_t){.ptr = list, .len = count};
}

static lobster_step_types_list_example_t examples(void) {
  size_t count = 0;
  while (step.examples && step.examples[count].summary) count++;
  lobster_step_types_example_t *list = count ? calloc(count, sizeof *list) : NULL;
  if (count && !list) abort();
  for (size_t i = 0; i < count; i++) {
    const lobster_example *example = &step.examples[i];
    list[i].summary = owned(example->summary);
    list[i].args = owned(example->args ? example->args : "{}");
    list[i].input = optional(example->input);
    list[i].output = optional(example->output);
  }
  return (lobster_step_types_list_example_t){.ptr = list, .len = count};
}

void exports_step_describe(step_description_t *ret) {
  *ret = (step_description_t){
      .name = owned(step.name),
      .version = owned(step.version),
      .summary = owned(step.summary),
      .args_schema = owned(step.args ? step.args : "{\"type\":\"object\"}"),
      .input_schema = optional(step.input),
      .output_schema = optional(step.output),
      .wants = wants(),
      .limits = {limit(step.fuel), limit(step.memory), limit(step.output_bytes), limit(step.timeout_ms)},
      .examples = examples(),
  };
}

bool exports_step_run(step_string_t *args, step_own_input_t input, step_own_output_t output, step_step_error_t *err) {
  static lobster_input in;
  static lobster_output out;
  in.host = lobster_step_io_borrow_input(input);
  out.host = lobster_step_io_borrow_output(output);
  json *given = json_parse((const char *)args->ptr, args->len, NULL);
  step_string_free(args);
  bool good = step.run(given, &in, &out);
  if (!good && !failure.happened) lobster_fail("failed", "the step failed without a reason");
  flush(&out);
  json_free(given);
  lobster_step_io_input_drop_own(input);
  lobster_step_io_output_drop_own(output);
  if (failure.happened) *err = failure.error;
  return !failure.happened;
}
