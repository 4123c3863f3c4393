#include <stdlib.h>
#include <string.h>

#include "lobster_step.h"
#include "texts.h"

static void *room(size_t count, size_t size) {
  void *made = calloc(count ? count : 1, size);
  if (!made) abort();
  return made;
}

/* "GET http://a/: refused: connection refused", without stdio. */
static char *sentence(const char *const *parts, size_t count) {
  size_t length = 1;
  for (size_t i = 0; i < count; i++) length += strlen(parts[i]);
  char *text = room(length, 1);
  for (size_t i = 0; i < count; i++) strcat(text, parts[i]);
  return text;
}

static lobster_response *failed(const char *method, const char *url, lobster_step_http_http_error_t error) {
  char *code = taken(error.code), *message = taken(error.message);
  char *text = sentence((const char *[]){method, " ", url, ": ", code, ": ", message}, 7);
  lobster_fail("http", text);
  if (error.retryable) lobster_retryable();
  free(text);
  free(message);
  free(code);
  return NULL;
}

lobster_response *lobster_fetch(const lobster_request *request) {
  const char *method = request->method ? request->method : "GET";
  size_t count = 0;
  while (request->headers && request->headers[count].name) count++;
  step_tuple2_string_string_t *headers = room(count, sizeof *headers);
  for (size_t i = 0; i < count; i++) {
    headers[i].f0 = borrowed(request->headers[i].name);
    headers[i].f1 = borrowed(request->headers[i].value);
  }
  lobster_step_http_request_t asked = {
      .method = borrowed(method),
      .url = borrowed(request->url),
      .headers = {.ptr = headers, .len = count},
      .body = {.ptr = (uint8_t *)request->body, .len = request->length},
      .timeout_ms = {.is_some = request->timeout_ms, .val = request->timeout_ms},
  };
  lobster_step_http_response_t given;
  lobster_step_http_http_error_t error;
  bool answered = lobster_step_http_fetch(&asked, &given, &error);
  free(headers);
  if (!answered) return failed(method, request->url, error);

  lobster_response *response = room(1, sizeof *response);
  lobster_header *named = room(given.headers.len + 1, sizeof *named);
  for (size_t i = 0; i < given.headers.len; i++) {
    named[i].name = taken(given.headers.ptr[i].f0);
    named[i].value = taken(given.headers.ptr[i].f1);
  }
  free(given.headers.ptr);
  *response = (lobster_response){given.status, named, given.body.ptr, given.body.len};
  return response;
}

const char *lobster_response_header(const lobster_response *response, const char *name) {
  for (const lobster_header *header = response->headers; header->name; header++)
    if (!strcmp(header->name, name)) return header->value;
  return NULL;
}

void lobster_response_free(lobster_response *response) {
  if (!response) return;
  for (const lobster_header *header = response->headers; header->name; header++) {
    free((char *)header->name);
    free((char *)header->value);
  }
  free((void *)response->headers);
  if (response->length) free((void *)response->body);
  free(response);
}
