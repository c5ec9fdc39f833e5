/* name_list.h - lists of names with commas between them. */
#ifndef FL_BASE_NAME_LIST_H
#define FL_BASE_NAME_LIST_H

#include <stdbool.h>
#include <string.h>

/* Is the word of n characters among them? NULL has none. */
static inline bool fl_name_list_has(const char *words, const char *word,
                                    size_t n)
{
    while (words && *words) {
        size_t length = strcspn(words, ",");

        if (length == n && memcmp(words, word, n) == 0)
            return true;
        words += length + (words[length] == ',');
    }
    return false;
}

#endif
