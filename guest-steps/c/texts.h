/* Texts of C, and those of the bindings. */
#ifndef LOBSTER_TEXTS_H
#define LOBSTER_TEXTS_H

#include <stdlib.h>
#include <string.h>

#include "gen/step.h"

/* For one call; NULL is an empty text. */
static inline step_string_t borrowed(const char *text) {
  return (step_string_t){.ptr = (uint8_t *)text, .len = text ? strlen(text) : 0};
}

/* A text that ends with 0; the host's is freed. */
static inline char *taken(step_string_t text) {
  char *copy = malloc(text.len + 1);
  if (!copy) abort();
  memcpy(copy, text.ptr, text.len);
  copy[text.len] = 0;
  step_string_free(&text);
  return copy;
}

#endif
