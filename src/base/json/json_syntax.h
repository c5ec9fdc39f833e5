/* json_syntax.h - where a text is not JSON, and what is expected in that place:
 * cJSON says neither, and takes numbers such as 01 and escapes of wrong digits.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

typedef struct fl_json_place {
    const char *at;       /* in the text, or its end */
    const char *expected; /* in words */
} fl_json_place;

/* False: nothing is wrong with its syntax. */
bool fl_json_find_fault(const char *text, size_t size, fl_json_place *fault);
