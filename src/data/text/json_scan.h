/* json_scan.h - one line of JSON, read where it lies: where its strings, bare
 * words and values end. Numbers stay text: a double does not hold ids of 64
 * bits. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

typedef struct fl_json_scan {
    const char *at, *end;
    const char *expected; /* why a call has failed, at `at` */
} fl_json_scan;

enum { FL_JSON_DEEPEST = 64 }; /* of values in one another */

/* A string's characters, or a bare word. */
typedef struct fl_json_piece {
    const char *text, *end;
    bool is_string;
    bool escaped; /* there are backslashes: see fl_json_unescape() */
} fl_json_piece;

/* Is c next, behind blanks? Then it is passed over. */
bool fl_json_scan_take(fl_json_scan *s, char c);

/* A string, or a bare word: a number, true, false, null, but nothing says yet
 * that it is one of these. */
bool fl_json_scan_piece(fl_json_scan *s, fl_json_piece *piece);

/* "NAME": of an object. */
bool fl_json_scan_key(fl_json_scan *s, fl_json_piece *key);

/* Pass over a value of any kind. */
bool fl_json_scan_skip(fl_json_scan *s);

/* Nothing but blanks is left. */
bool fl_json_scan_end(fl_json_scan *s);

bool fl_json_piece_is(const fl_json_piece *p,
                      const char *word); /* a bare one */

/* What the string means, in UTF-8; `to` has room for as many bytes as the
 * piece. False: a backslash that is none of JSON's. */
bool fl_json_unescape(const fl_json_piece *p, char *to, size_t *size);
