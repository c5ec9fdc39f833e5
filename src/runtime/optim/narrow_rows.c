/* narrow_rows.c - rows whose weights are not float32, changed a few at a time
 * in memory of the stack. */
#include "runtime/optim/narrow_rows.h"

#include <math.h>
#include <string.h>

#include "base/hash.h"
#include "runtime/simd/simd.h"

enum { HEAD = sizeof(fl_row_head) / sizeof(float) };
enum { FLOATS = HEAD + FL_MOST_NARROW_DIM * (1 + FL_MAX_STATE) + FL_MAX_ROW };
enum { MOST_ROWS = 32, ALIGN = 4 };

/* Rows in floats: head, weights, the rest. */
typedef struct wide_rows {
    _Alignas(64) float at[(FLOATS + ALIGN) / ALIGN * ALIGN];
    float *w[MOST_ROWS];
} wide_rows;

uint64_t fl_rounding_seed(uint64_t table, uint64_t key, uint64_t version)
{
    return fl_mix(fl_mix(table ^ fl_mix(key)) + version);
}

/* The lines of a row that is read soon. */
static void ask_for(const float *row, int64_t floats)
{
    const char *at = (const char *)(row - HEAD);

    for (int64_t i = 0; i < (HEAD + floats) * (int64_t)sizeof(float); i += 64)
        __builtin_prefetch(at + i);
}

static void to_floats(const fl_narrow_rows *rows, const float *from, float *to)
{
    int64_t words = fl_storage_words(rows->storage, rows->dim);

    memcpy(to - HEAD, from - HEAD, sizeof(fl_row_head));
    fl_simd_best()->read_weights(rows->storage, to, from, rows->dim);
    memcpy(to + rows->dim, from + words, (size_t)rows->n_float * sizeof *to);
}

static void from_floats(const fl_narrow_rows *rows, const float *from,
                        float *to, uint64_t key, uint64_t version)
{
    int64_t words = fl_storage_words(rows->storage, rows->dim);
    uint64_t seed = fl_rounding_seed(rows->seed, key, version);

    memcpy(to - HEAD, from - HEAD, sizeof(fl_row_head));
    fl_simd_best()->write_weights(rows->storage, to, from, rows->dim, &seed);
    memcpy(to + words, from + rows->dim, (size_t)rows->n_float * sizeof *to);
}

/* --- bounds --------------------------------------------------------------- */

/* Of 16 bits: the next number that is kept, from x on, up or down. Numbers of
 * one sign are in the order of their bits. */
static float next_kept(fleet_row_storage s, float x, bool up)
{
    float word, kept;
    uint16_t bits;
    bool negative;

    fl_simd_best()->write_weights(s, &word, &x, 1, NULL);
    fl_simd_best()->read_weights(s, &kept, &word, 1);
    if (up ? kept >= x : kept <= x)
        return kept;
    memcpy(&bits, &word, sizeof bits);
    negative = bits >> 15;
    bits = (uint16_t)(negative == up ? bits - 1 : bits + 1);
    memcpy(&word, &bits, sizeof bits);
    fl_simd_best()->read_weights(s, &kept, &word, 1);
    return kept;
}

bool fl_narrow_bounds(fleet_row_storage s, float size, float *low, float *high)
{
    float row[2]; /* of one weight */

    if (s == FLEET_ROW_INT8) {
        fl_simd_best()->write_weights(s, row, &size, 1, NULL);
        *low = ceilf(*low / row[0]) * row[0];
        *high = floorf(*high / row[0]) * row[0];
    } else if (s != FLEET_ROW_FLOAT32) {
        *low = next_kept(s, *low, true);
        *high = next_kept(s, *high, false);
    }
    return *low <= *high;
}

static float largest_of(const float *w, int64_t n)
{
    float most = 0;

    for (int64_t i = 0; i < n; i++)
        most = fmaxf(most, fabsf(w[i]));
    return most;
}

/* Integers of 8 bits are of the row. With bounds of its numbers it may have a
 * finer scale, which has these numbers, too. */
static void bound_row(const fl_narrow_rows *rows, const fleet_optimizer *o,
                      float *w)
{
    float low = o->low, high = o->high;

    fl_rule_set_best()->bound(low, high, &w, 1, rows->dim);
    fl_narrow_bounds(rows->storage, largest_of(w, rows->dim), &low, &high);
    fl_rule_set_best()->bound(low, high, &w, 1, rows->dim);
}

static void bound_rows(const fl_narrow_rows *rows, const fleet_optimizer *o,
                       float *const *w, int64_t n)
{
    float low = o->low, high = o->high;

    if (rows->storage == FLEET_ROW_INT8) {
        for (int64_t i = 0; i < n; i++)
            bound_row(rows, o, w[i]);
        return;
    }
    fl_narrow_bounds(rows->storage, 0, &low, &high);
    fl_rule_set_best()->bound(low, high, w, n, rows->dim);
}

/* --- all of it ------------------------------------------------------------ */

void fl_narrow_change(const fl_narrow_rows *rows, const fleet_optimizer *o,
                      const fl_update *u, const uint64_t *key, float *const *w,
                      const float *const *g, int64_t n)
{
    int64_t floats = rows->dim + rows->n_float;
    int64_t stride = (HEAD + floats + ALIGN - 1) / ALIGN * ALIGN;
    wide_rows wide;
    int64_t most = (int64_t)(sizeof wide.at / sizeof *wide.at);
    int64_t each = most / stride < MOST_ROWS ? most / stride : MOST_ROWS;

    for (int64_t first = 0; first < n; first += each) {
        int64_t m = n - first < each ? n - first : each;

        for (int64_t i = 0; i < m; i++) {
            if (first + i + each / 2 < n)
                ask_for(w[first + i + each / 2], floats);
            wide.w[i] = wide.at + i * stride + HEAD;
            to_floats(rows, w[first + i], wide.w[i]);
        }
        fl_optimizer_rows(o)(u, wide.w, g + first, m, rows->dim);
        if (o->bounds)
            bound_rows(rows, o, wide.w, m);
        for (int64_t i = 0; i < m; i++)
            from_floats(rows, wide.w[i], w[first + i], key[first + i],
                        u->version);
    }
}
