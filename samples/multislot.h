/* multislot.h - one line of MultiSlot text as the feeds of a predictor: for
 * every input, in its order, a count and that many values. Weights stand with
 * their ids, "id:weight". */
#pragma once

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fleet/fleet.h>

enum { MOST_INPUTS = 1000, MOST_VALUES = 100000 };

/* The sample of a line: each feed points to its part of the values. */
typedef struct sample {
    const char *file;
    long line;         /* its number, from 1 */
    char *text, *rest; /* of strtok_r() */
    fleet_feed feed[MOST_INPUTS];
    int64_t dims[MOST_INPUTS][FLEET_MAX_DIM], offsets[MOST_INPUTS][2];
    int64_t id[MOST_VALUES];
    float number[MOST_VALUES];
} sample;

/* NULL at the line's end. */
static inline char *next_word(sample *s)
{
    char *word = strtok_r(s->text, " \t\r\n\v\f", &s->rest);

    s->text = NULL;
    return word;
}

/* Report a word that does not fit; NULL: the line has ended. */
static inline int refuse_word(const sample *s, const fleet_var *v,
                              const char *expected, const char *word)
{
    fprintf(stderr, "predict: %s:%ld: input \"%s\": expected %s, ", s->file,
            s->line, fleet_var_name(v), expected);
    if (word)
        fprintf(stderr, "got \"%.60s\"\n", word);
    else
        fprintf(stderr, "but the line ends\n");
    return -1;
}

/* How many values of this input follow, at most `room`; -1: bad text. */
static inline int read_count(sample *s, const fleet_var *v, int room)
{
    char *word = next_word(s), *end = word, expected[80];
    const long n = word ? strtol(word, &end, 10) : -1;
    const bool is_count = word && !*end && n >= 0 && n <= room;
    int64_t dims[FLEET_MAX_DIM];

    if (fleet_var_is_ragged(v)) {
        snprintf(expected, sizeof expected, "a count of values up to %d", room);
        return is_count ? (int)n : refuse_word(s, v, expected, word);
    }
    if (fleet_var_shape(v, dims) != 2 || dims[1] > room)
        return refuse_word(s, v, "an input of one dimension", word);
    snprintf(expected, sizeof expected, "the count %lld", (long long)dims[1]);
    return is_count && n == dims[1] ? (int)n
                                    : refuse_word(s, v, expected, word);
}

/* The weight behind an id, which ends at *end; without a colon it is 1. */
static inline bool read_weight(sample *s, int i, char **end)
{
    char *from = *end + 1;

    s->number[i] = 1;
    if (**end != ':')
        return true;
    s->number[i] = strtof(from, end);
    return *end != from && isfinite(s->number[i]);
}

/* Read one value, into place i of the sample's; -1: bad text. */
static inline int read_value(sample *s, const fleet_var *v, int i)
{
    char *word = next_word(s), *end = word;
    bool fits = false;

    errno = 0;
    if (fleet_var_weights(v)) {
        if (word && isdigit((unsigned char)*word))
            s->id[i] = (int64_t)strtoull(word, &end, 10);
        fits =
            end != word && errno != ERANGE && read_weight(s, i, &end) && !*end;
        return fits ? 0
                    : refuse_word(s, v,
                                  "a whole number from 0 to 2^64 - 1, perhaps "
                                  "with a colon and its weight",
                                  word);
    }
    if (fleet_var_dtype(v) == FLEET_INT64) {
        if (word && isdigit((unsigned char)*word))
            s->id[i] = (int64_t)strtoull(word, &end, 10);
        fits = end != word && !*end && errno != ERANGE;
        return fits ? 0
                    : refuse_word(s, v, "a whole number from 0 to 2^64 - 1",
                                  word);
    }
    if (word)
        s->number[i] = strtof(word, &end);
    fits = end != word && !*end && isfinite(s->number[i]);
    return fits ? 0 : refuse_word(s, v, "a finite number", word);
}

/* Input i has n values, from place `first` of the sample's on. */
static inline void put_feed(sample *s, const fleet_predictor *p, int i,
                            int first, int n)
{
    const fleet_var *v = fleet_predictor_input(p, i);
    const bool is_id = fleet_var_dtype(v) == FLEET_INT64;
    const bool is_ragged = fleet_var_is_ragged(v);

    s->feed[i] = (fleet_feed){.name = fleet_var_name(v),
                              .dtype = fleet_var_dtype(v),
                              .data = is_id ? (void *)&s->id[first]
                                            : (void *)&s->number[first],
                              .dims = s->dims[i],
                              .n_dim = is_ragged ? 1 : 2,
                              .offsets = is_ragged ? s->offsets[i] : NULL};
    s->dims[i][0] = 1;
    s->dims[i][1] = s->offsets[i][1] = n;
}

/* The input whose weights input i is; i itself: it is no weights. */
static inline int ids_of(const fleet_predictor *p, int i)
{
    for (int j = 0; j < fleet_predictor_input_num(p); j++)
        if (fleet_var_weights(fleet_predictor_input(p, j)) ==
            fleet_predictor_input(p, i))
            return j;
    return i;
}

/* Read the line as a batch of one sample; -1: bad text, which is reported. */
static inline int read_sample(sample *s, char *text, const fleet_predictor *p)
{
    const int n_input = fleet_predictor_input_num(p);
    int used = 0, count[MOST_INPUTS] = {0}, first[MOST_INPUTS];

    s->text = text;
    for (int i = 0; i < n_input; i++) {
        const fleet_var *v = fleet_predictor_input(p, i);

        first[i] = used;
        if (ids_of(p, i) == i)
            count[i] = read_count(s, v, MOST_VALUES - used);
        if (count[i] < 0)
            return -1;
        for (int k = 0; k < count[i]; k++)
            if (read_value(s, v, used + k) != 0)
                return -1;
        used += count[i];
    }
    for (int i = 0; i < n_input; i++)
        put_feed(s, p, i, first[ids_of(p, i)], count[ids_of(p, i)]);
    const char *word = next_word(s);
    if (!word)
        return 0;
    fprintf(stderr,
            "predict: %s:%ld: \"%.60s\" comes after the last of %d "
            "inputs\n",
            s->file, s->line, word, n_input);
    return -1;
}
