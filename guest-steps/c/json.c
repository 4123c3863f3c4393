#include "json.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A deeper text is refused: the stack of a component is small. */
#define DEEPEST 200

#define BLOCK 4096

typedef struct member {
  const char *name;
  json *value;
  struct member *next;
} member;

struct json {
  json_type type;
  bool truth;
  /* The text of a string, or a number as it was written. */
  const char *text;
  size_t length;
  member *first;
  /* Of arrays and objects: the members in order, for json_at. */
  member **index;
};

/* Memory of a document: freed as a whole. */
typedef struct block {
  struct block *next;
  size_t used;
  size_t size;
  max_align_t data[];
} block;

typedef struct {
  json root;
  block *blocks;
} document;

typedef struct {
  document *in;
  const char *at;
  const char *end;
  const char *why;
} reader;

static void *need(void *memory) {
  if (!memory) abort();
  return memory;
}

static void *take(document *in, size_t size) {
  size = (size + sizeof(max_align_t) - 1) / sizeof(max_align_t) * sizeof(max_align_t);
  if (!in->blocks || in->blocks->size - in->blocks->used < size) {
    size_t room = size > BLOCK ? size : BLOCK;
    block *fresh = need(malloc(sizeof(block) + room));
    *fresh = (block){.next = in->blocks, .size = room};
    in->blocks = fresh;
  }
  void *memory = (char *)in->blocks->data + in->blocks->used;
  in->blocks->used += size;
  return memset(memory, 0, size);
}

static bool wrong(reader *r, const char *why) {
  if (!r->why) r->why = why;
  return false;
}

static void blanks(reader *r) {
  while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r')) r->at++;
}

static bool eat(reader *r, char c) {
  if (r->at == r->end || *r->at != c) return false;
  r->at++;
  return true;
}

static bool word(reader *r, const char *text) {
  size_t length = strlen(text);
  if ((size_t)(r->end - r->at) < length || memcmp(r->at, text, length)) return wrong(r, "a value is expected");
  r->at += length;
  return true;
}

static int hex4(reader *r) {
  int value = 0;
  for (int i = 0; i < 4; i++) {
    if (r->at == r->end) return -1;
    char c = *r->at++;
    int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

static char *utf8(char *to, uint32_t code) {
  if (code < 0x80) {
    *to++ = (char)code;
  } else if (code < 0x800) {
    *to++ = (char)(0xc0 | code >> 6);
    *to++ = (char)(0x80 | (code & 63));
  } else if (code < 0x10000) {
    *to++ = (char)(0xe0 | code >> 12);
    *to++ = (char)(0x80 | (code >> 6 & 63));
    *to++ = (char)(0x80 | (code & 63));
  } else {
    *to++ = (char)(0xf0 | code >> 18);
    *to++ = (char)(0x80 | (code >> 12 & 63));
    *to++ = (char)(0x80 | (code >> 6 & 63));
    *to++ = (char)(0x80 | (code & 63));
  }
  return to;
}

/* After \u: one character, which may be a pair of surrogates. Half a pair
   becomes U+FFFD, because text that leaves the step has to be UTF-8. */
static bool escaped(reader *r, char **to) {
  int code = hex4(r);
  if (code < 0) return wrong(r, "\\u needs four hexadecimal digits");
  if (code >= 0xd800 && code < 0xdc00 && r->end - r->at >= 6 && r->at[0] == '\\' && r->at[1] == 'u') {
    const char *before = r->at;
    r->at += 2;
    int low = hex4(r);
    if (low >= 0xdc00 && low < 0xe000) {
      *to = utf8(*to, 0x10000 + ((uint32_t)(code - 0xd800) << 10) + (uint32_t)(low - 0xdc00));
      return true;
    }
    r->at = before;
  }
  *to = utf8(*to, code >= 0xd800 && code < 0xe000 ? 0xfffd : (uint32_t)code);
  return true;
}

/* A string after its opening quote. It is never longer than it is written. */
static bool string(reader *r, const char **text, size_t *length) {
  const char *from = r->at;
  const char *end = from;
  while (end < r->end && *end != '"') end += *end == '\\' && end + 1 < r->end ? 2 : 1;
  if (end >= r->end) return wrong(r, "a string does not end");
  char *start = take(r->in, (size_t)(end - from) + 1), *to = start;
  while (r->at < end) {
    char c = *r->at++;
    if ((unsigned char)c < 0x20) return wrong(r, "a control character stands in a string");
    if (c != '\\') {
      *to++ = c;
      continue;
    }
    switch (*r->at++) {
      case '"': *to++ = '"'; break;
      case '\\': *to++ = '\\'; break;
      case '/': *to++ = '/'; break;
      case 'b': *to++ = '\b'; break;
      case 'f': *to++ = '\f'; break;
      case 'n': *to++ = '\n'; break;
      case 'r': *to++ = '\r'; break;
      case 't': *to++ = '\t'; break;
      case 'u':
        if (!escaped(r, &to)) return false;
        break;
      default: return wrong(r, "a string has an escape that JSON does not know");
    }
  }
  r->at = end + 1;
  *text = start;
  *length = (size_t)(to - start);
  return true;
}

static bool digits(reader *r) {
  const char *from = r->at;
  while (r->at < r->end && *r->at >= '0' && *r->at <= '9') r->at++;
  return r->at > from || wrong(r, "a number lacks a digit");
}

static bool number(reader *r, json *value) {
  const char *from = r->at;
  eat(r, '-');
  if (!eat(r, '0') && !digits(r)) return false;
  if (eat(r, '.') && !digits(r)) return false;
  if (r->at < r->end && (*r->at == 'e' || *r->at == 'E')) {
    r->at++;
    if (!eat(r, '+')) eat(r, '-');
    if (!digits(r)) return false;
  }
  value->length = (size_t)(r->at - from);
  value->text = memcpy(take(r->in, value->length + 1), from, value->length);
  value->type = JSON_NUMBER;
  return true;
}

static bool read_value(reader *r, json *value, int depth);

static bool members(reader *r, json *value, int depth) {
  bool named = value->type == JSON_OBJECT;
  char close = named ? '}' : ']';
  member **last = &value->first;
  blanks(r);
  if (eat(r, close)) return true;
  do {
    member *one = take(r->in, sizeof *one);
    one->value = take(r->in, sizeof *one->value);
    size_t length;
    blanks(r);
    if (named) {
      if (!eat(r, '"')) return wrong(r, "a member's name is expected");
      if (!string(r, &one->name, &length)) return false;
      blanks(r);
      if (!eat(r, ':')) return wrong(r, "a colon is expected");
    }
    if (!read_value(r, one->value, depth + 1)) return false;
    *last = one;
    last = &one->next;
    value->length++;
    blanks(r);
  } while (eat(r, ','));
  if (!eat(r, close)) return wrong(r, "a comma or the closing bracket is expected");
  value->index = take(r->in, value->length * sizeof *value->index);
  size_t at = 0;
  for (member *one = value->first; one; one = one->next) value->index[at++] = one;
  return true;
}

static bool read_value(reader *r, json *value, int depth) {
  if (depth > DEEPEST) return wrong(r, "it is nested too deeply");
  blanks(r);
  if (r->at == r->end) return wrong(r, "it ends where a value is expected");
  switch (*r->at) {
    case '{':
    case '[':
      value->type = *r->at++ == '{' ? JSON_OBJECT : JSON_ARRAY;
      return members(r, value, depth);
    case '"':
      r->at++;
      value->type = JSON_STRING;
      return string(r, &value->text, &value->length);
    case 't':
    case 'f':
      value->type = JSON_BOOL;
      value->truth = *r->at == 't';
      return word(r, value->truth ? "true" : "false");
    case 'n': value->type = JSON_NULL; return word(r, "null");
    default: return number(r, value);
  }
}

json *json_parse(const char *text, size_t length, const char **why) {
  document *in = need(calloc(1, sizeof *in));
  reader r = {.in = in, .at = text, .end = text + length};
  bool good = read_value(&r, &in->root, 0);
  blanks(&r);
  if (good && r.at == r.end) return &in->root;
  if (why) *why = r.why ? r.why : "something follows the value";
  json_free(&in->root);
  return NULL;
}

void json_free(json *root) {
  if (!root) return;
  document *in = (document *)root; /* The root is its first field. */
  for (block *one = in->blocks, *next; one; one = next) {
    next = one->next;
    free(one);
  }
  free(in);
}

json_type json_type_of(const json *value) { return value ? value->type : JSON_NULL; }

/* Of a name that stands twice the last one counts, as everywhere. */
const json *json_get(const json *object, const char *name) {
  const json *found = NULL;
  if (json_type_of(object) == JSON_OBJECT)
    for (const member *one = object->first; one; one = one->next)
      if (!strcmp(one->name, name)) found = one->value;
  return found;
}

static const member *nth(const json *value, size_t index) {
  bool holds = json_type_of(value) == JSON_ARRAY || json_type_of(value) == JSON_OBJECT;
  return holds && index < value->length ? value->index[index] : NULL;
}

const json *json_at(const json *array, size_t index) {
  const member *one = nth(array, index);
  return one ? one->value : NULL;
}

const char *json_name(const json *object, size_t index) {
  const member *one = nth(object, index);
  return one ? one->name : NULL;
}

size_t json_length(const json *value) {
  json_type type = json_type_of(value);
  return type == JSON_STRING || type == JSON_ARRAY || type == JSON_OBJECT ? value->length : 0;
}

const char *json_text(const json *value) { return json_type_of(value) == JSON_STRING ? value->text : NULL; }

double json_number(const json *value, double otherwise) {
  return json_type_of(value) == JSON_NUMBER ? strtod(value->text, NULL) : otherwise;
}

bool json_is_true(const json *value) { return json_type_of(value) == JSON_BOOL && value->truth; }

static void add(json_out *out, const char *text, size_t length) {
  if (out->room - out->length <= length) {
    out->room = (out->length + length + 1) * 2;
    out->text = need(realloc(out->text, out->room));
  }
  memcpy(out->text + out->length, text, length);
  out->length += length;
  out->text[out->length] = 0;
}

/* Begins a value or a name: after another one stands a comma. */
static void begin(json_out *out) {
  if (out->comma) add(out, ",", 1);
  out->comma = true;
}

static void open(json_out *out, const char *bracket) {
  begin(out);
  add(out, bracket, 1);
  out->comma = false;
}

static void close(json_out *out, const char *bracket) {
  add(out, bracket, 1);
  out->comma = true;
}

void json_begin_object(json_out *out) { open(out, "{"); }
void json_end_object(json_out *out) { close(out, "}"); }
void json_begin_array(json_out *out) { open(out, "["); }
void json_end_array(json_out *out) { close(out, "]"); }

/* Not by printf: that brings all of stdio, and with it imports of WASI, into a
   step that has no use for them. */
static void escape(json_out *out, const char *text, size_t length) {
  static const char named[] = "btn?fr", hex[] = "0123456789abcdef";
  size_t plain = 0;
  for (size_t i = 0; i < length; i++) {
    unsigned char c = (unsigned char)text[i];
    if (c >= 0x20 && c != '"' && c != '\\') continue;
    add(out, text + plain, i - plain);
    plain = i + 1;
    char code[] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};
    bool is_short = c >= 0x20 || (c >= 8 && c <= 13 && c != 11);
    if (is_short) code[1] = c >= 0x20 ? (char)c : named[c - 8];
    add(out, code, is_short ? 2 : sizeof code);
  }
  add(out, text + plain, length - plain);
}

static void quoted(json_out *out, const char *text, size_t length) {
  add(out, "\"", 1);
  escape(out, text, length);
  add(out, "\"", 1);
}

void json_put_name(json_out *out, const char *name) {
  begin(out);
  quoted(out, name, strlen(name));
  add(out, ":", 1);
  out->comma = false;
}

void json_put_text_n(json_out *out, const char *text, size_t length) {
  begin(out);
  quoted(out, text, length);
}

void json_put_text(json_out *out, const char *text) {
  if (text) json_put_text_n(out, text, strlen(text));
  else json_put_null(out);
}

void json_begin_text(json_out *out) {
  begin(out);
  add(out, "\"", 1);
}

void json_add_text(json_out *out, const char *part) { escape(out, part, strlen(part)); }

void json_end_text(json_out *out) { add(out, "\"", 1); }

void json_put_number(json_out *out, double number) {
  char text[32];
  if (!isfinite(number)) return json_put_null(out);
  /* The shortest of them that means the same number. */
  for (int precision = 15; precision <= 17; precision++) {
    snprintf(text, sizeof text, "%.*g", precision, number);
    if (strtod(text, NULL) == number) break;
  }
  begin(out);
  add(out, text, strlen(text));
}

void json_put_integer(json_out *out, long long number) {
  char text[32];
  snprintf(text, sizeof text, "%lld", number);
  begin(out);
  add(out, text, strlen(text));
}

void json_put_bool(json_out *out, bool value) {
  begin(out);
  add(out, value ? "true" : "false", value ? 4 : 5);
}

void json_put_null(json_out *out) {
  begin(out);
  add(out, "null", 4);
}

void json_put(json_out *out, const json *value) {
  switch (json_type_of(value)) {
    case JSON_NULL: json_put_null(out); break;
    case JSON_BOOL: json_put_bool(out, value->truth); break;
    case JSON_NUMBER:
      begin(out);
      add(out, value->text, value->length);
      break;
    case JSON_STRING: json_put_text_n(out, value->text, value->length); break;
    case JSON_ARRAY:
      json_begin_array(out);
      for (size_t i = 0; i < value->length; i++) json_put(out, value->index[i]->value);
      json_end_array(out);
      break;
    case JSON_OBJECT:
      json_begin_object(out);
      for (size_t i = 0; i < value->length; i++) {
        json_put_name(out, value->index[i]->name);
        json_put(out, value->index[i]->value);
      }
      json_end_object(out);
      break;
  }
}

void json_out_clear(json_out *out) {
  out->length = 0;
  out->comma = false;
  if (out->text) out->text[0] = 0;
}

void json_out_free(json_out *out) {
  free(out->text);
  *out = (json_out){0};
}
