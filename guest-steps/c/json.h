/* JSON for steps: reading into a tree, writing into a buffer. */
#ifndef LOBSTER_JSON_H
#define LOBSTER_JSON_H

#include <stdbool.h>
#include <stddef.h>

typedef enum { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT } json_type;

/* A value. It belongs to the document that it was parsed with. */
typedef struct json json;

/* Reads one JSON text. NULL if it is none; `why`, unless NULL, then says what is
   wrong with it. Free the document with json_free. */
json *json_parse(const char *text, size_t length, const char **why);
void json_free(json *document);

/* All of these take NULL for a value that is not there, so that
   json_text(json_get(json_get(item, "from"), "name")) needs no test in between. */
json_type json_type_of(const json *value);
const json *json_get(const json *object, const char *name);
const json *json_at(const json *array, size_t index);
/* Elements of an array, members of an object, bytes of a string. */
size_t json_length(const json *value);
/* The name of an object's member; json_at gives its value. */
const char *json_name(const json *object, size_t index);
/* NULL if it is not a string. A string may hold zero bytes: see json_length. */
const char *json_text(const json *value);
double json_number(const json *value, double otherwise);
bool json_is_true(const json *value);

/* A growing buffer that is always one JSON text in the making. Commas and
   colons are put in for you. Zero it to begin: json_out out = {0}; */
typedef struct {
  char *text;
  size_t length;
  size_t room;
  bool comma;
} json_out;

void json_begin_object(json_out *out);
void json_end_object(json_out *out);
void json_begin_array(json_out *out);
void json_end_array(json_out *out);
void json_put_name(json_out *out, const char *name);
void json_put_text(json_out *out, const char *text);
void json_put_text_n(json_out *out, const char *text, size_t length);
/* A text in parts: begin, as many parts as there are, end. */
void json_begin_text(json_out *out);
void json_add_text(json_out *out, const char *part);
void json_end_text(json_out *out);
/* Not a number and the infinities, which JSON has not, become null. */
void json_put_number(json_out *out, double number);
void json_put_integer(json_out *out, long long number);
void json_put_bool(json_out *out, bool value);
void json_put_null(json_out *out);
/* A value as it was read, numbers digit by digit. */
void json_put(json_out *out, const json *value);
/* Empties the buffer and keeps its room. */
void json_out_clear(json_out *out);
void json_out_free(json_out *out);

#endif
