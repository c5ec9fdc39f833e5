/* warp_rows_test.c - rows that teams of threads share
 * (runtime/device/cuda/warp_rows.h), of lengths that fit in pieces of 16 bytes
 * and of ones that do not: gathered, and summed by key, to the bit. */
#define SUITE warp_rows
#include "device_kit.h"
#include "test.h"
#include "train_kit.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/store/lookup_kernels.h"

enum { BATCH = 70, FEATURES = 2, CELLS = BATCH * FEATURES, KEYS = 23 };

/* Both features write into one output; a feature's rows begin `gap` floats
 * late. */
typedef struct scene {
    device_kit k;
    int64_t dim, gap, ld;
    fl_feature feature[FEATURES];
    fl_device_lookup lookup;
    uint32_t which[CELLS], cell[CELLS], position[CELLS], start[KEYS + 1];
} scene;

/* Positions by key, in their order. */
static void sort_positions(scene *s)
{
    uint32_t n = 0;

    for (uint32_t key = 0; key < KEYS; key++) {
        s->start[key] = n;
        for (uint32_t i = 0; i < CELLS; i++)
            if (s->which[i] == key)
                s->position[n++] = i;
    }
    s->start[KEYS] = n;
}

static void open_scene(scene *s, int64_t dim, int64_t gap)
{
    memset(s, 0, sizeof *s);
    s->dim = dim;
    s->gap = gap;
    s->ld = FEATURES * dim + gap;
    for (int i = 0; i < FEATURES; i++)
        s->feature[i] =
            (fl_feature){.ids = 5, .out = 6, .out_column = gap + i * dim};
    s->lookup = (fl_device_lookup){.feature = s->feature,
                                   .n_feature = FEATURES,
                                   .dim = dim,
                                   .capacity = CELLS};
    for (uint32_t i = 0; i < CELLS; i++) {
        s->which[i] = i * 7 % 31 % KEYS;
        s->cell[i] = i;
    }
    sort_positions(s);
    device_kit_open(&s->k, true);
}

static float *noise(int64_t n, int stream)
{
    float *x = malloc((size_t)n * sizeof *x);

    for (int64_t i = 0; i < n; i++)
        x[i] = kit_noise(i, stream);
    return x;
}

static void run(scene *s, const char *name, fl_device_arg *arg)
{
    device_kit_run(
        &s->k, name,
        &(fl_device_step){
            .arg = arg, .n_arg = 7, .config = &s->lookup, .batch = BATCH});
}

static void drop(scene *s, const fl_device_arg *arg)
{
    for (int i = 0; i < 7; i++)
        if (arg[i].data)
            device_kit_drop(&s->k, arg[i].data);
}

static void check_gather(scene *s)
{
    size_t bytes = (size_t)(BATCH * s->ld) * sizeof(float);
    float *row = noise(KEYS * s->dim, 1), *out;
    fl_device_arg arg[7] = {
        {0},
        {0},
        {.data = device_kit_make(&s->k, row,
                                 (size_t)(KEYS * s->dim) * sizeof *row)},
        {.data = device_kit_make(&s->k, s->which, sizeof s->which)},
        {0},
        {0},
        {.data = device_kit_make(&s->k, NULL, bytes), .ld = s->ld}};

    run(s, "lookup.gather", arg);
    out = device_kit_fetch(&s->k, arg[6].data, bytes);
    for (int64_t cell = 0; cell < CELLS; cell++)
        for (int64_t c = 0; c < s->dim; c++)
            CHECK(out[cell / FEATURES * s->ld + s->gap +
                      cell % FEATURES * s->dim + c] ==
                  row[s->which[cell] * s->dim + c]);
    drop(s, arg);
    free(out);
    free(row);
}

static float sum_of(const scene *s, const float *g, int64_t key, int64_t c)
{
    float sum = 0;

    for (uint32_t r = s->start[key]; r < s->start[key + 1]; r++) {
        uint32_t cell = s->position[r];

        sum +=
            g[cell / FEATURES * s->ld + s->gap + cell % FEATURES * s->dim + c];
    }
    return sum;
}

static void check_sum(scene *s)
{
    size_t bytes = (size_t)(CELLS * s->dim) * sizeof(float);
    float *g = noise(BATCH * s->ld, 2), *sum;
    int64_t n = KEYS;
    fl_device_arg arg[7] = {
        {.data = device_kit_make(&s->k, NULL, bytes)},
        {.data = device_kit_make(&s->k, s->start, sizeof s->start)},
        {.data = device_kit_make(&s->k, s->position, sizeof s->position)},
        {.data = device_kit_make(&s->k, s->cell, sizeof s->cell)},
        {.data = device_kit_make(&s->k, &n, sizeof n)},
        {0},
        {.data = device_kit_make(&s->k, g, (size_t)(BATCH * s->ld) * sizeof *g),
         .ld = s->ld}};

    run(s, "lookup.sum", arg);
    sum = device_kit_fetch(&s->k, arg[0].data, bytes);
    for (int64_t key = 0; key < KEYS; key++)
        for (int64_t c = 0; c < s->dim; c++)
            CHECK(sum[key * s->dim + c] == sum_of(s, g, key, c));
    drop(s, arg);
    free(sum);
    free(g);
}

TEST(rows_of_any_length_are_gathered_and_summed)
{
    static const int64_t dim[] = {1, 3, 4, 8, 9, 16, 64, 200}, gap[] = {0, 3};

    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 2; j++) {
            scene s;

            open_scene(&s, dim[i], gap[j]);
            check_gather(&s);
            check_sum(&s);
            device_kit_close(&s.k);
        }
}
