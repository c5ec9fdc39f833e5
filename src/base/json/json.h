/* json.h - JSON read with paths, so that an error can say where it stands.
 * json.c and json_write.c alone include <cJSON.h>. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

typedef struct cJSON fl_json;

/* A value and the path that leads to it. */
typedef struct fl_at {
    const fl_json *json; /* NULL: absent */
    char path[200];      /* "dataset.train[1]"; "" is the whole text */
    int index;           /* fl_at_next()'s */
} fl_at;

/* Parse size bytes. name, a file's say, stands in the error with the line, the
 * column, and what was expected and came. */
fleet_status fl_json_parse(const char *text, size_t size, const char *name,
                           fl_json **json);
void fl_json_free(fl_json *json);

/* Of text that a person wrote: FLEET_ECONFIG, with name and line, for a control
 * character as it is, a 0 among them, and for a string that is not UTF-8. */
fleet_status fl_json_check_text(const char *text, size_t size,
                                const char *name);

/* Of text that is not JSON, and becomes names and strings: FLEET_ECONFIG if it
 * is not UTF-8. */
fleet_status fl_json_check_string(const char *text);

fl_at fl_at_root(const fl_json *json);
fl_at fl_at_key(const fl_at *object, const char *key); /* may be absent */
fl_at fl_at_index(const fl_at *array, int index); /* walks: for short ones */
/* The elements in turn:
 * for (fl_at e = fl_at_first(&a); e.json; fl_at_next(&a, &e)) */
fl_at fl_at_first(const fl_at *array);
void fl_at_next(const fl_at *array, fl_at *element);
int fl_at_count(const fl_at *array); /* elements, 0 when absent */
/* The members of an object in turn, none of what is no object:
 * for (fl_at e = fl_at_first_member(&o); e.json; fl_at_next_member(&o, &e)) */
fl_at fl_at_first_member(const fl_at *object);
void fl_at_next_member(const fl_at *object, fl_at *member);
const char *fl_at_name(const fl_at *member); /* the JSON's */
bool fl_at_is_array(const fl_at *at);
bool fl_at_is_object(const fl_at *at);
bool fl_at_is_string(const fl_at *at);
bool fl_at_is_null(const fl_at *at);

/* FLEET_ECONFIG if at is no object, or has a key that is not in the NULL-ended
 * list, or has one twice. Absent is fine. */
fleet_status fl_at_keys(const fl_at *at, const char *const *known);
fleet_status fl_at_array(const fl_at *at);    /* an array, or absent */
fleet_status fl_at_any_keys(const fl_at *at); /* an object, or absent */

/* Up to this one each integer is a double of its own: a text of 2^53 + 1 reads
 * as 2^53. */
#define FL_MOST_EXACT (((int64_t)1 << 53) - 1)

/* Read a value of the type, in [low, high]. Absent leaves *out alone. */
fleet_status fl_at_bool(const fl_at *at, bool *out);
fleet_status fl_at_int(const fl_at *at, int64_t low, int64_t high,
                       int64_t *out);
fleet_status fl_at_double(const fl_at *at, double low, double high,
                          double *out);
fleet_status fl_at_float(const fl_at *at, float *out); /* any that is finite */
fleet_status fl_at_string(const fl_at *at, const char **out); /* not a copy */
fleet_status fl_at_hex(const fl_at *at, uint64_t *out); /* present, 16 digits */
fleet_status fl_at_required(const fl_at *at);           /* present */

/* The index of the string in a NULL-ended list of names. */
fleet_status fl_at_choice(const fl_at *at, const char *const *names, int *out);
/* What a reader asks of a value, or of one that is absent. */
typedef enum fl_asked_kind {
    FL_ASKED_KEYS,    /* an object with these names */
    FL_ASKED_MEMBERS, /* an object with any names */
    FL_ASKED_LIST,    /* an array */
    FL_ASKED_BOOL,
    FL_ASKED_INT,    /* from low to high */
    FL_ASKED_NUMBER, /* likewise */
    FL_ASKED_STRING,
    FL_ASKED_CHOICE,  /* one of the names */
    FL_ASKED_REQUIRED /* not absent */
} fl_asked_kind;

typedef struct fl_asked {
    fl_asked_kind kind;
    double low, high;
    const char *const *names; /* NULL-ended */
} fl_asked;

/* From now on, until NULL, this thread's calls of the functions above tell what
 * they ask, each before it looks at the value: so that what a reader takes can
 * be described by the reader itself. */
typedef void fl_asked_observer(void *arg, const fl_at *at,
                               const fl_asked *asked);
void fl_at_observe(fl_asked_observer *observer, void *arg);

/* What fl_json_words() has written; *data is for fl_free(). FLEET_EFORMAT for
 * what is none. */
fleet_status fl_at_words(const fl_at *at, size_t size, void *data, int64_t *n);

/* "path: expected WHAT, got VALUE" with the value as it stands. */
fleet_status fl_at_expected(const fl_at *at, const char *what);

/* Tests: cJSON allocates through memory.h from now on. */
void fl_json_use_allocator(void);
