/* lookup_kernels_test.c - the steps of a lookup on a device (lookup_kernels.h)
 * against plain loops: three slots of one table, one of them of any number of
 * ids and averaged, with ids that are equal within and across them. */
#define SUITE lookup_kernels
#include "device_kit.h"
#include "test.h"
#include "train_kit.h"

#include <stdlib.h>
#include <string.h>

#include "cuda-emu/control.h"
#include "runtime/store/lookup_kernels.h"
#include "runtime/optim/update_gpu.h"

enum {
    BATCH = 300,
    WIDE = 2,
    MOST_RAGGED = 4,
    FEATURES = 3,
    DIM = 37, /* more columns than a block has of a key at a time */
    BELOW = 90
};
enum { CAPACITY = BATCH * (WIDE + MOST_RAGGED) + 17, OUT_LD = 2 * DIM + 3 };

/* Two features are columns of one feed, the third is ragged. */
static const fl_feature feature_of_keys[FEATURES] = {
    {.ids = 3, .column = 1, .out = -1},
    {.ids = 3, .column = 0, .out = -1},
    {.ids = 4, .out = -1, .ragged = true, .combiner = FLEET_MEAN}};

typedef struct scene {
    device_kit k;
    fl_device_arg ids, ragged; /* feeds, in device memory */
    int64_t id[BATCH * WIDE], list[BATCH * MOST_RAGGED], offsets[BATCH + 1];

    /* by position, and what is to come out */
    int64_t n;
    uint64_t key[CAPACITY];
    uint32_t cell[CAPACITY];

    void *keys, *cells, *count, *unique, *start, *position, *which, *n_unique;
} scene;

static void *make(scene *s, const void *from, size_t bytes)
{
    return device_kit_make(&s->k, from, bytes);
}

static void drop(scene *s, void *p)
{
    device_kit_drop(&s->k, p);
}

static void *fetch(scene *s, const void *from, size_t bytes)
{
    return device_kit_fetch(&s->k, from, bytes);
}

static void run(scene *s, const char *name, const fl_device_lookup *c,
                const fl_device_arg *arg, int n)
{
    device_kit_run(
        &s->k, name,
        &(fl_device_step){.arg = arg, .n_arg = n, .config = c, .batch = BATCH});
}

static fl_device_lookup lookup(const fl_feature *feature)
{
    return (fl_device_lookup){.feature = feature,
                              .n_feature = FEATURES,
                              .dim = DIM,
                              .capacity = CAPACITY,
                              .bits = 64};
}

/* --- what is fed, and the keys that should come --------------------------- */

/* Some ids use all of their 64 bits, and one is in every second sample. */
static int64_t some_id(int i, int stream)
{
    int64_t id = (int64_t)((kit_noise(i, stream) + 1) / 2 * BELOW);

    if (stream == 1 && i % 2)
        return 3;
    return id % 7 == 0 ? -id - 1 : id;
}

static void add_position(scene *s, int64_t id, int64_t cell)
{
    s->key[s->n] = (uint64_t)id;
    s->cell[s->n++] = (uint32_t)cell;
}

static void fill(scene *s)
{
    for (int i = 0; i < BATCH * WIDE; i++)
        s->id[i] = some_id(i, 1);
    for (int i = 0; i < BATCH; i++) {
        int n = i % (MOST_RAGGED + 1);

        s->offsets[i + 1] = s->offsets[i] + n;
        add_position(s, s->id[i * WIDE + 1], i * FEATURES);
        add_position(s, s->id[i * WIDE], i * FEATURES + 1);
        for (int64_t j = s->offsets[i]; j < s->offsets[i + 1]; j++) {
            s->list[j] = some_id((int)j, 2);
            add_position(s, s->list[j], i * FEATURES + 2);
        }
    }
}

static void open_scene(scene *s)
{
    memset(s, 0, sizeof *s);
    device_kit_open(&s->k, true);
    fill(s);
    s->ids = (fl_device_arg){.data = make(s, s->id, sizeof s->id),
                             .cols = WIDE,
                             .ld = WIDE,
                             .factor = 1,
                             .rows = BATCH,
                             .dtype = FLEET_INT64};
    s->ragged =
        (fl_device_arg){.data = make(s, s->list, sizeof s->list),
                        .dtype = FLEET_INT64,
                        .offsets = make(s, s->offsets, sizeof s->offsets)};
    s->keys = make(s, NULL, CAPACITY * sizeof(uint64_t));
    s->cells = make(s, NULL, CAPACITY * sizeof(uint32_t));
    s->count = make(s, NULL, sizeof(int64_t));
    s->unique = make(s, NULL, CAPACITY * sizeof(uint64_t));
    s->start = make(s, NULL, (CAPACITY + 1) * sizeof(uint32_t));
    s->position = make(s, NULL, CAPACITY * sizeof(uint32_t));
    s->which = make(s, NULL, CAPACITY * sizeof(uint32_t));
    s->n_unique = make(s, NULL, sizeof(int64_t));
}

static void close_scene(scene *s)
{
    void *all[] = {s->ids.data, s->ragged.data, (void *)s->ragged.offsets,
                   s->keys,     s->cells,       s->count,
                   s->unique,   s->start,       s->position,
                   s->which,    s->n_unique};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        drop(s, all[i]);
    device_kit_close(&s->k);
}

/* The ids as keys, and the keys numbered. */
static void find_keys(scene *s)
{
    fl_device_lookup c = lookup(feature_of_keys);
    fl_device_arg keys[] = {{.data = s->keys},
                            {.data = s->cells},
                            {.data = s->count},
                            s->ids,
                            s->ragged};
    fl_device_arg unique[] = {{.data = s->unique},   {.data = s->start},
                              {.data = s->position}, {.data = s->which},
                              {.data = s->n_unique}, {.data = s->keys},
                              {.data = s->count}};

    run(s, "lookup.keys", &c, keys, 5);
    run(s, "lookup.unique", &c, unique, 7);
}

TEST(ids_become_keys_in_the_order_of_sample_feature_and_place)
{
    uint64_t *key;
    uint32_t *cell;
    int64_t *n;
    scene s;

    open_scene(&s);
    find_keys(&s);
    n = fetch(&s, s.count, sizeof *n);
    key = fetch(&s, s.keys, CAPACITY * sizeof *key);
    cell = fetch(&s, s.cells, CAPACITY * sizeof *cell);
    CHECK_INT(*n, s.n);
    for (int64_t i = 0; i < s.n; i++) {
        CHECK(key[i] == s.key[i]);
        CHECK(cell[i] == s.cell[i]);
    }
    free(n);
    free(key);
    free(cell);
    close_scene(&s);
}

static void check_unique(scene *s)
{
    int64_t *n = fetch(s, s->n_unique, sizeof *n);
    uint64_t *key = fetch(s, s->unique, CAPACITY * sizeof *key);
    uint32_t *start = fetch(s, s->start, (CAPACITY + 1) * sizeof *start);
    uint32_t *position = fetch(s, s->position, CAPACITY * sizeof *position);
    uint32_t *which = fetch(s, s->which, CAPACITY * sizeof *which);

    CHECK(*n > BELOW / 2 && *n <= BELOW);
    CHECK_INT(start[0], 0);
    CHECK_INT(start[*n], s->n);
    for (int64_t u = 0; u < *n; u++) {
        CHECK(u == 0 || key[u - 1] < key[u]);
        CHECK(start[u] < start[u + 1]);
        for (uint32_t r = start[u]; r < start[u + 1]; r++) {
            CHECK(s->key[position[r]] == key[u]);
            CHECK(which[position[r]] == u);
            CHECK(r == start[u] || position[r - 1] < position[r]);
        }
    }
    free(n);
    free(key);
    free(start);
    free(position);
    free(which);
}

TEST(equal_keys_are_one_and_keep_the_order_of_their_positions)
{
    scene s;

    for (int reverse = 0; reverse < 2; reverse++) {
        fl_emu_set_reverse(reverse);
        open_scene(&s);
        find_keys(&s);
        check_unique(&s);
        close_scene(&s);
    }
}

/* --- keys of all kinds ---------------------------------------------------- */

/* So many keys, where there is room for more: the i-th of `distinct` is
 * number(i), spread over the digits of `mask`, from `base` on. */
typedef struct key_case {
    int64_t n, room, distinct;
    uint64_t base, mask;
    int bits;
    int64_t same; /* the first of them are equal */
} key_case;

/* The bits of x in the places of the mask's, the lowest first. */
static uint64_t spread(uint64_t x, uint64_t mask)
{
    uint64_t all = 0;

    for (int i = 0; i < 64; i++)
        if (mask >> i & 1) {
            all |= (x & 1) << i;
            x >>= 1;
        }
    return all;
}

static uint64_t nth_key(const key_case *c, int64_t i)
{
    return c->base |
           spread(i < c->same ? 0 : (uint64_t)(i * 7919 % c->distinct),
                  c->mask);
}

static void check_sorted(const key_case *c, const uint64_t *unique,
                         const uint32_t *start, const uint32_t *position)
{
    for (int64_t u = 0; u < c->distinct; u++) {
        CHECK(u == 0 || unique[u - 1] < unique[u]);
        CHECK(start[u] < start[u + 1]);
        for (uint32_t r = start[u]; r < start[u + 1]; r++)
            CHECK(nth_key(c, position[r]) == unique[u] &&
                  (r == start[u] || position[r - 1] < position[r]));
    }
    CHECK_INT(start[c->distinct], c->n);
}

static void number_keys(const key_case *c)
{
    const fl_device_lookup config = {.capacity = c->room, .bits = c->bits};
    size_t room = (size_t)c->room;
    uint64_t *key = calloc(room, sizeof *key), *unique;
    int64_t *n_unique;
    uint32_t *start, *position;
    device_kit k;

    for (int64_t i = 0; i < c->n; i++)
        key[i] = nth_key(c, i);
    device_kit_open(&k, true);
    fl_device_arg arg[] = {
        {.data = device_kit_make(&k, NULL, room * sizeof(uint64_t))},
        {.data = device_kit_make(&k, NULL, (room + 1) * sizeof(uint32_t))},
        {.data = device_kit_make(&k, NULL, room * sizeof(uint32_t))},
        {.data = device_kit_make(&k, NULL, room * sizeof(uint32_t))},
        {.data = device_kit_make(&k, NULL, sizeof(int64_t))},
        {.data = device_kit_make(&k, key, room * sizeof *key)},
        {.data = device_kit_make(&k, &c->n, sizeof c->n)}};

    device_kit_run(
        &k, "lookup.unique",
        &(fl_device_step){.arg = arg, .n_arg = 7, .config = &config});
    n_unique = device_kit_fetch(&k, arg[4].data, sizeof *n_unique);
    unique = device_kit_fetch(&k, arg[0].data, room * sizeof *unique);
    start = device_kit_fetch(&k, arg[1].data, (room + 1) * sizeof *start);
    position = device_kit_fetch(&k, arg[2].data, room * sizeof *position);
    CHECK_INT(*n_unique, c->distinct);
    check_sorted(c, unique, start, position);
    for (int i = 0; i < 7; i++)
        device_kit_drop(&k, arg[i].data);
    free(n_unique);
    free(unique);
    free(start);
    free(position);
    free(key);
    device_kit_close(&k);
}

/* As many as a block, some blocks, and many have; none; and all of the room. */
TEST(any_number_of_keys_is_numbered)
{
    static const key_case cases[] = {
        {1, 1, 1, 5, 0, 64, 0},
        {300, 512, 100, 0, 0xffff, 16, 0},
        {20000, 26624, 5000, 0, 0xfffff, 20, 0},
        {66000, 70000, 5000, 0, 0xffff, 16, 0},
        {66000, 66000, 66000, 0, 0xfffff, 64, 0},
        {270000, 300000, 100000, 0, 0xfffff, 20, 0}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        number_keys(&cases[i]);
}

/* A pass does nothing where the keys have one digit in common: any of them. */
TEST(keys_differ_in_whichever_digits)
{
    static const uint64_t masks[] = {0xff,
                                     0xff00,
                                     0xff000000000000ff,
                                     0xff00000000000000,
                                     0xff00ff00ff00,
                                     0x0f00f000000,
                                     0x0101010101010101,
                                     UINT64_MAX,
                                     0x8080808080808080};

    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++)
        for (int full = 0; full < 2; full++)
            number_keys(&(key_case){1000, full ? 1000 : 3000, 200,
                                    0xa55a0102fffe0300 & ~masks[i], masks[i],
                                    64, 0});
    number_keys(&(key_case){1000, 3000, 1, UINT64_MAX, 0, 64, 0});
    number_keys(&(key_case){3000, 3000, 200, 0, 0xff000000, 64, 1000});
}

/* --- gather and sum ------------------------------------------------------- */

/* Two features write into columns of one output. */
static const fl_feature feature_of_rows[FEATURES] = {
    {.ids = 5, .out = 7, .out_column = DIM + 2},
    {.ids = 5, .out = 7, .out_column = 1},
    {.ids = 6, .out = 8, .ragged = true, .combiner = FLEET_MEAN}};

static float value_of(uint64_t key, int64_t column)
{
    return kit_noise((int64_t)(key % 1000), (int)column);
}

/* The mean, or the one, of a cell's rows. */
static float wanted(const scene *s, int64_t sample, int feature, int64_t column)
{
    float sum = 0;
    int n = 0;

    for (int64_t i = 0; i < s->n; i++)
        if (s->cell[i] == sample * FEATURES + feature) {
            sum += value_of(s->key[i], column);
            n++;
        }
    return n > 1 ? sum * (1.0f / (float)n) : sum;
}

static float *rows_of_keys(scene *s)
{
    uint64_t *key = fetch(s, s->unique, CAPACITY * sizeof *key);
    int64_t *n = fetch(s, s->n_unique, sizeof *n);
    float *row = calloc(CAPACITY * DIM, sizeof *row);

    for (int64_t u = 0; u < *n; u++)
        for (int c = 0; c < DIM; c++)
            row[u * DIM + c] = value_of(key[u], c);
    free(key);
    free(n);
    return row;
}

TEST(rows_are_gathered_into_the_outputs_of_all_features)
{
    fl_device_lookup c = lookup(feature_of_rows);
    float *row, *two, *one;
    scene s;

    open_scene(&s);
    find_keys(&s);
    row = rows_of_keys(&s);
    fl_device_arg arg[9] = {
        {.data = NULL},
        {.data = NULL},
        {.data = make(&s, row, CAPACITY * DIM * sizeof *row)},
        {.data = s.which},
        {.data = NULL},
        s.ids,
        s.ragged,
        {.data = make(&s, NULL, BATCH * OUT_LD * sizeof *row), .ld = OUT_LD},
        {.data = make(&s, NULL, BATCH * DIM * sizeof *row), .ld = DIM}};
    run(&s, "lookup.gather", &c, arg, 9);
    two = fetch(&s, arg[7].data, BATCH * OUT_LD * sizeof *row);
    one = fetch(&s, arg[8].data, BATCH * DIM * sizeof *row);
    for (int i = 0; i < BATCH; i++)
        for (int col = 0; col < DIM; col++) {
            CHECK(two[i * OUT_LD + DIM + 2 + col] == wanted(&s, i, 0, col));
            CHECK(two[i * OUT_LD + 1 + col] == wanted(&s, i, 1, col));
            CHECK_CLOSE(&one[i * DIM + col], &(float){wanted(&s, i, 2, col)}, 1,
                        1e-6);
        }
    drop(&s, arg[2].data);
    drop(&s, arg[7].data);
    drop(&s, arg[8].data);
    free(row);
    free(two);
    free(one);
    close_scene(&s);
}

static float gradient(int64_t sample, int feature, int64_t column)
{
    return kit_noise(sample * FEATURES + feature, 10 + (int)column);
}

/* What a key's gradient is, added up in the order of positions. */
static float wanted_sum(const scene *s, uint64_t key, int64_t column)
{
    float sum = 0;

    for (int64_t i = 0; i < s->n; i++) {
        int64_t sample = s->cell[i] / FEATURES;
        int feature = (int)(s->cell[i] % FEATURES);
        float by =
            feature == 2
                ? 1.0f / (float)(s->offsets[sample + 1] - s->offsets[sample])
                : 1.0f;

        if (s->key[i] == key)
            sum += by * gradient(sample, feature, column);
    }
    return sum;
}

static void check_sums(scene *s, const float *sum)
{
    uint64_t *key = fetch(s, s->unique, CAPACITY * sizeof *key);
    int64_t *n = fetch(s, s->n_unique, sizeof *n);

    for (int64_t u = 0; u < *n; u++)
        for (int c = 0; c < DIM; c++)
            CHECK(sum[u * DIM + c] == wanted_sum(s, key[u], c));
    free(key);
    free(n);
}

TEST(gradients_of_equal_keys_are_added_in_order_to_the_bit)
{
    fl_device_lookup c = lookup(feature_of_rows);
    float two[BATCH * OUT_LD] = {0}, one[BATCH * DIM], *sum;
    scene s;

    for (int i = 0; i < BATCH; i++)
        for (int col = 0; col < DIM; col++) {
            two[i * OUT_LD + DIM + 2 + col] = gradient(i, 0, col);
            two[i * OUT_LD + 1 + col] = gradient(i, 1, col);
            one[i * DIM + col] = gradient(i, 2, col);
        }
    open_scene(&s);
    find_keys(&s);
    fl_device_arg arg[9] = {
        {.data = make(&s, NULL, CAPACITY * DIM * sizeof *sum)},
        {.data = s.start},
        {.data = s.position},
        {.data = s.cells},
        {.data = s.n_unique},
        s.ids,
        s.ragged,
        {.data = make(&s, two, sizeof two), .ld = OUT_LD},
        {.data = make(&s, one, sizeof one), .ld = DIM}};
    run(&s, "lookup.sum", &c, arg, 9);
    sum = fetch(&s, arg[0].data, CAPACITY * DIM * sizeof *sum);
    check_sums(&s, sum);
    drop(&s, arg[0].data);
    drop(&s, arg[7].data);
    drop(&s, arg[8].data);
    free(sum);
    close_scene(&s);
}

/* --- merge ---------------------------------------------------------------- */

enum { MERGED = 5, BATCHES = 3 };

/* Batch b has the keys b, b + 1, ...; each key's sums are told by its batch. */
static void append_batch(scene *s, const fl_device_arg *merged, int b)
{
    fl_device_lookup c = lookup(NULL);
    fl_device_update now = {.micro = b};
    uint64_t key[MERGED];
    float sum[MERGED * DIM];
    int64_t n = MERGED;

    for (int i = 0; i < MERGED; i++)
        key[i] = (uint64_t)(b + i);
    for (int i = 0; i < MERGED * DIM; i++)
        sum[i] = kit_noise(i, b);
    c.capacity = MERGED;
    fl_device_arg arg[] = {merged[0],
                           merged[1],
                           merged[2],
                           merged[3],
                           {.data = make(s, &now, sizeof now)},
                           {.data = make(s, key, sizeof key)},
                           {.data = make(s, sum, sizeof sum)},
                           {.data = make(s, &n, sizeof n)}};
    run(s, "lookup.append", &c, arg, 8);
    for (int i = 4; i < 8; i++)
        drop(s, arg[i].data);
}

static void merge_keys(scene *s, const fl_device_arg *merged, float **sum)
{
    static const fl_feature one = {.ids = 5, .out = 6};
    fl_device_lookup c = lookup(&one);
    fl_device_arg unique[] = {{.data = s->unique},
                              {.data = s->start},
                              {.data = s->position},
                              {.data = s->which},
                              {.data = s->n_unique},
                              merged[0],
                              merged[3]};
    fl_device_arg sums[] = {
        {.data = make(s, NULL, CAPACITY * DIM * sizeof(float))},
        {.data = s->start},
        {.data = s->position},
        merged[1],
        {.data = s->n_unique},
        {.data = NULL},
        {.data = merged[2].data, .ld = DIM}};

    c.n_feature = 1;
    run(s, "lookup.unique", &c, unique, 7);
    run(s, "lookup.sum", &c, sums, 7);
    *sum = fetch(s, sums[0].data, CAPACITY * DIM * sizeof **sum);
    drop(s, sums[0].data);
}

/* A group of batches: the one before it must not count. */
TEST(sums_of_several_batches_are_merged_in_their_order)
{
    scene s;
    float *sum;
    int64_t *n;

    open_scene(&s);
    fl_device_arg merged[] = {
        {.data = s.keys},
        {.data = s.cells},
        {.data = make(&s, NULL, CAPACITY * DIM * sizeof *sum)},
        {.data = s.count}};
    append_batch(&s, merged, 0);
    for (int b = 0; b < BATCHES; b++)
        append_batch(&s, merged, b);
    merge_keys(&s, merged, &sum);
    n = fetch(&s, s.n_unique, sizeof *n);
    CHECK_INT(*n, MERGED + BATCHES - 1);
    for (int u = 0; u < *n; u++)
        for (int col = 0; col < DIM; col++) {
            float want = 0;

            for (int b = 0; b < BATCHES; b++)
                if (u >= b && u < b + MERGED)
                    want += kit_noise((u - b) * DIM + col, b);
            CHECK(sum[u * DIM + col] == want);
        }
    drop(&s, merged[2].data);
    free(n);
    free(sum);
    close_scene(&s);
}
