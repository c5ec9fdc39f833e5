/* comm_kit_parts.c - what every group of ranks must do: see comm_kit.h. */
#define SUITE comm_kit_parts
#include "comm_kit.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ELEMENT = 8 };

static const int64_t element[FL_N_WIRE] = {
    [FL_WIRE_F32] = 4, [FL_WIRE_F64] = 8, [FL_WIRE_I32] = 4, [FL_WIRE_I64] = 8,
    [FL_WIRE_U8] = 1,  [FL_WIRE_F16] = 2, [FL_WIRE_BF16] = 2};

static bool has_mean(fl_wire_type type)
{
    return type < FL_WIRE_I32 || type > FL_WIRE_U8;
}

/* Sums in another order are another sum; their largest is not. */
static double tolerance(const fl_comm *p, fl_reduce how, fl_wire_type type)
{
    bool is_free = !p->ordered && strcmp(p->methods->name, "shm") != 0;
    bool is_sum = how == FL_ALL_SUM || how == FL_ALL_MEAN;

    return is_free && is_sum && type <= FL_WIRE_F64 ? 1e-4 : 0.0;
}

static void finish(fl_comm *p, fl_work **work)
{
    if (!work)
        return;
    CHECK_OK(p->methods->wait(p, work));
    CHECK(*work == NULL);
}

/* --- reductions ---------------------------------------------------------- */

typedef struct sort {
    fl_reduce how;
    fl_wire_type type;
    int64_t n;
    bool in_place, later;
} sort;

static void all_reduce(fl_comm *p, const sort *s)
{
    size_t bytes = (size_t)(s->n * element[s->type]);
    char *in = calloc(bytes + 1, 1), *want = calloc(bytes + 1, 1);
    char *other = calloc(bytes + 1, 1), *out = s->in_place ? in : other;
    fl_work *work = NULL, **later = s->later ? &work : NULL;

    comm_kit_fill(in, s->type, p->rank, s->n);
    comm_kit_want(want, s->how, s->type, p->size, 0, s->n);
    CHECK_OK(p->methods->all_reduce(p, s->how, s->type, in, out, s->n, later));
    finish(p, later);
    comm_kit_check(out, want, s->type, s->n, tolerance(p, s->how, s->type));
    free(in);
    free(other);
    free(want);
}

static void reduce_scatter(fl_comm *p, const sort *s)
{
    size_t bytes = (size_t)(s->n * element[s->type]);
    char *in = calloc(bytes * (size_t)p->size + 1, 1),
         *want = calloc(bytes + 1, 1);
    char *other = calloc(bytes + 1, 1);
    char *out = s->in_place ? in + bytes * (size_t)p->rank : other;
    fl_work *work = NULL, **later = s->later ? &work : NULL;

    comm_kit_fill(in, s->type, p->rank, s->n * p->size);
    comm_kit_want(want, s->how, s->type, p->size, s->n * p->rank, s->n);
    CHECK_OK(
        p->methods->reduce_scatter(p, s->how, s->type, in, out, s->n, later));
    finish(p, later);
    comm_kit_check(out, want, s->type, s->n, tolerance(p, s->how, s->type));
    free(in);
    free(other);
    free(want);
}

static void reduce(fl_comm *p, fl_reduce how, fl_wire_type type, int64_t n)
{
    /* the large ones are slow to check: two of the four ways */
    for (int i = 0; i<4; i += n> 1000 ? 3 : 1) {
        sort s = {how, type, n, i & 1, i & 2};

        all_reduce(p, &s);
        reduce_scatter(p, &s);
    }
}

static void reductions(fl_comm *p)
{
    static const int64_t sizes[] = {0, 1, 3, 1000, 65537};

    for (int i = 0; i < 5; i++)
        for (fl_wire_type type = 0; type < FL_N_WIRE; type++)
            for (fl_reduce how = 0; how < FL_N_REDUCE; how++)
                if (how != FL_ALL_MEAN || has_mean(type))
                    reduce(p, how, type,
                           sizes[i] > 1000 ? sizes[i] / TEST_SLOWNESS
                                           : sizes[i]);
}

/* --- 64 MB of each type -------------------------------------------------- */

/* And a little more: what takes up to 64 MB at once takes a second turn.
 * Numbers that repeat are made and checked once; no chunk is as long as a prime
 * number of them, so that one in the place of another is seen. */
enum { LARGE = (64 << 20) / TEST_SLOWNESS + 8168, PERIOD = 4093 };

typedef struct repeated {
    fl_reduce how;
    fl_wire_type type;
    double tolerance;
    char one[PERIOD * MOST_ELEMENT];
    char want[2 * PERIOD * MOST_ELEMENT]; /* from any place on */
} repeated;

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void set_repeated(repeated *r, fl_comm *p, fl_reduce how,
                         fl_wire_type type)
{
    size_t period = (size_t)(PERIOD * element[type]);

    r->how = how;
    r->type = type;
    r->tolerance = tolerance(p, how, type);
    comm_kit_fill(r->one, type, p->rank, PERIOD);
    comm_kit_want(r->want, how, type, p->size, 0, PERIOD);
    memcpy(r->want + period, r->want, period);
}

static void fill_repeated(const repeated *r, char *x, int64_t bytes)
{
    int64_t period = PERIOD * element[r->type];

    for (int64_t at = 0; at < bytes; at += period)
        memcpy(x + at, r->one, (size_t)least(period, bytes - at));
}

/* x begins with element `first`. */
static void check_repeated(const repeated *r, const char *x, int64_t first,
                           int64_t bytes)
{
    int64_t size = element[r->type], period = PERIOD * size;
    const char *want = r->want + first % PERIOD * size;

    for (int64_t at = 0; at < bytes; at += period) {
        int64_t n = least(period, bytes - at);

        if (memcmp(x + at, want, (size_t)n) != 0)
            comm_kit_check(x + at, want, r->type, n / size, r->tolerance);
    }
}

/* Every type and every reduction, in place and out of it; `shift` makes other
 * pairs of them. */
static void each_large(fl_comm *p, int shift,
                       void (*run)(fl_comm *p, const repeated *r, char *in,
                                   char *out))
{
    char *x = malloc(LARGE), *y = malloc(LARGE);
    repeated *r = malloc(sizeof *r);

    for (fl_wire_type type = 0; type < FL_N_WIRE; type++) {
        fl_reduce how = (fl_reduce)(((int)type + shift) % FL_N_REDUCE);

        if (how == FL_ALL_MEAN && !has_mean(type))
            how = FL_ALL_SUM;
        set_repeated(r, p, how, type);
        fill_repeated(r, x, LARGE);
        run(p, r, x, ((int)type + shift / 2) % 2 ? x : y);
    }
    free(r);
    free(x);
    free(y);
}

static void large_of(fl_comm *p, const repeated *r, char *in, char *out)
{
    CHECK_OK(p->methods->all_reduce(p, r->how, r->type, in, out,
                                    LARGE / element[r->type], NULL));
    check_repeated(r, out, 0, LARGE);
    if (out != in) /* what is not in place is left as it was */
        CHECK(memcmp(in, r->one, (size_t)(PERIOD * element[r->type])) == 0);
}

static void large(fl_comm *p)
{
    each_large(p, 0, large_of);
}

static void large_scatter_of(fl_comm *p, const repeated *r, char *in, char *out)
{
    int64_t size = element[r->type], each = LARGE / size / p->size;
    char *mine = out == in ? in + p->rank * each * size : out;

    CHECK_OK(
        p->methods->reduce_scatter(p, r->how, r->type, in, mine, each, NULL));
    check_repeated(r, mine, p->rank * each, each * size);
}

static void large_scatter(fl_comm *p)
{
    each_large(p, 2, large_scatter_of);
}

/* --- moving -------------------------------------------------------------- */

static char byte_of(int rank, int64_t i)
{
    return (char)(rank * 37 + i * 11 + (i >> 8));
}

static void fill(char *x, int rank, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = byte_of(rank, i);
}

static void check_bytes(const char *x, int rank, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (x[i] != byte_of(rank, i))
            test_fail(__FILE__, __LINE__, "byte %lld of rank %d is another",
                      (long long)i, rank);
}

static void gather(fl_comm *p, int64_t n, bool in_place, bool is_later)
{
    char *out = calloc((size_t)(n * p->size) + 1, 1),
         *other = calloc((size_t)n + 1, 1);
    char *in = in_place ? out + n * p->rank : other;
    fl_work *work = NULL, **later = is_later ? &work : NULL;

    fill(in, p->rank, n);
    CHECK_OK(p->methods->all_gather(p, in, out, n, later));
    finish(p, later);
    for (int r = 0; r < p->size; r++)
        check_bytes(out + n * r, r, n);
    free(out);
    free(other);
}

static void broadcast(fl_comm *p, int64_t n, int root, bool is_later)
{
    char *x = calloc((size_t)n + 1, 1);
    fl_work *work = NULL, **later = is_later ? &work : NULL;

    fill(x, p->rank, n);
    CHECK_OK(p->methods->broadcast(p, x, n, root, later));
    finish(p, later);
    check_bytes(x, root, n);
    free(x);
}

/* Each pair of ranks has a size of its own; some have none. */
static int64_t pair_size(int from, int to, int64_t n)
{
    return n * ((from * 3 + to * 5) % 4) + (n > 0) * (from == to);
}

static void all_to_all(fl_comm *p, int64_t n, bool is_later)
{
    int64_t to[8], from[8], n_to = 0, n_from = 0;
    fl_work *work = NULL, **later = is_later ? &work : NULL;
    char *in, *out;

    for (int r = 0; r < p->size; r++) {
        n_to += to[r] = pair_size(p->rank, r, n);
        n_from += from[r] = pair_size(r, p->rank, n);
    }
    in = calloc((size_t)n_to + 1, 1);
    out = calloc((size_t)n_from + 1, 1);
    for (int64_t r = 0, at = 0; r < p->size; at += to[r++])
        fill(in + at, p->rank * 8 + (int)r, to[r]);
    CHECK_OK(p->methods->all_to_all_v(p, in, to, out, from, later));
    memset(to, 0xFF, sizeof to); /* counts are the caller's at once */
    finish(p, later);
    for (int64_t r = 0, at = 0; r < p->size; at += from[r++])
        check_bytes(out + at, (int)r * 8 + p->rank,
                    pair_size((int)r, p->rank, n));
    free(in);
    free(out);
}

static void moves(fl_comm *p)
{
    static const int64_t sizes[] = {0, 1, 3, 1000, 300001, 1500000};

    for (int i = 0; i < 6; i++)
        for (int way = 0; way < 4; way++) {
            gather(p, sizes[i], way & 1, way & 2);
            broadcast(p, sizes[i], way % p->size, way & 2);
            all_to_all(p, sizes[i], way & 2);
            CHECK_OK(p->methods->barrier(p));
        }
}

/* Round in a ring, with and without work; what is large, too. */
static void ring(fl_comm *p, int64_t n)
{
    int next = (p->rank + 1) % p->size,
        last = (p->rank + p->size - 1) % p->size;
    char *out = calloc((size_t)n + 1, 1), *in = calloc((size_t)n + 1, 1);
    fl_work *send = NULL, *recv = NULL;

    fill(out, p->rank, n);
    CHECK_OK(p->methods->send(p, out, n, next, &send));
    CHECK_OK(p->methods->recv(p, in, n, last, &recv));
    CHECK_OK(p->methods->wait(p, &recv));
    check_bytes(in, last, n);
    CHECK_OK(p->methods->wait(p, &send));
    free(out);
    free(in);
}

static void ping(fl_comm *p, int64_t n)
{
    char *x = calloc((size_t)n + 1, 1);

    fill(x, p->rank, n);
    if (p->rank == 0) {
        CHECK_OK(p->methods->send(p, x, n, 1, NULL));
        CHECK_OK(p->methods->recv(p, x, n, 1, NULL));
        check_bytes(x, 1, n);
    } else if (p->rank == 1) {
        char *y = calloc((size_t)n + 1, 1);

        CHECK_OK(p->methods->recv(p, y, n, 0, NULL));
        check_bytes(y, 0, n);
        CHECK_OK(p->methods->send(p, x, n, 0, NULL));
        free(y);
    }
    free(x);
}

/* More than MPI is given at once. */
static void large_broadcast(fl_comm *p)
{
    broadcast(p, LARGE + 5, p->size - 1, false);
}

/* Each rank has as much for all, and for the rank that has most. */
static void large_moves(fl_comm *p)
{
    for (int way = 0; way < 4; way++)
        gather(p, LARGE + way, way & 1, way & 2);
    for (int is_later = 0; is_later < 2; is_later++)
        all_to_all(p, LARGE / 3 + 7 * is_later, is_later);
}

static void messages(fl_comm *p)
{
    static const int64_t sizes[] = {0, 1, 1000, 5000000};

    for (int i = 0; i < 4; i++) {
        ring(p, sizes[i]);
        if (p->size > 1)
            ping(p, sizes[i]);
    }
}

/* --- several under way --------------------------------------------------- */

/* Reductions and messages at the same time, waited for in another order, with
 * calls that are waited for in between. */
static void works(fl_comm *p)
{
    enum { N = 8, EACH = 20000 };
    static _Thread_local float x[N][EACH], y[EACH], z[EACH], one;
    fl_work *work[N], *send, *recv;
    float all = (float)(p->size * (p->size + 1)) / 2;

    for (int i = 0; i < N; i++)
        for (int j = 0; j < EACH; j++)
            x[i][j] = (float)((p->rank + 1) * (i + 1));
    CHECK_OK(p->methods->recv(p, z, sizeof z, (p->rank + 1) % p->size, &recv));
    for (int i = 0; i < N; i++)
        CHECK_OK(p->methods->all_reduce(p, FL_ALL_SUM, FL_WIRE_F32, x[i], x[i],
                                        EACH - i, &work[i]));
    one = (float)(p->rank + 1);
    CHECK_OK(p->methods->all_reduce(p, FL_ALL_SUM, FL_WIRE_F32, &one, &one, 1,
                                    NULL));
    CHECK(one == all);
    y[EACH - 1] = (float)p->rank;
    CHECK_OK(p->methods->send(p, y, sizeof y, (p->rank + p->size - 1) % p->size,
                              &send));
    for (int i = N; i-- > 0;) {
        CHECK_OK(p->methods->wait(p, &work[i]));
        CHECK(x[i][0] == all * (float)(i + 1));
        CHECK(x[i][EACH - i - 1] == all * (float)(i + 1));
    }
    CHECK_OK(p->methods->wait(p, &recv));
    CHECK(z[EACH - 1] == (float)((p->rank + 1) % p->size));
    CHECK_OK(p->methods->wait(p, &send));
}

/* Work that nobody waits for ends with the group. */
static void forgotten(fl_comm *p)
{
    static _Thread_local float x[1000];
    static _Thread_local char y;
    fl_work *work;

    CHECK_OK(p->methods->barrier(p));
    CHECK_OK(p->methods->recv(p, &y, 1, (p->rank + 1) % p->size, &work));
    CHECK_OK(
        p->methods->all_reduce(p, FL_ALL_SUM, FL_WIRE_F32, x, x, 1000, &work));
    if (p->size > 1)
        CHECK_OK(p->methods->barrier(p));
}

/* --- memory, and smaller groups ------------------------------------------ */

static void reduce_in(fl_comm *p, float *x, int64_t n)
{
    float all = (float)(p->size * (p->size + 1)) / 2;

    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(p->rank + 1) * (float)(i % 100);
    CHECK_OK(p->methods->all_reduce(p, FL_ALL_SUM, FL_WIRE_F32, x, x, n, NULL));
    for (int64_t i = 0; i < n; i++)
        CHECK(x[i] == all * (float)(i % 100));
}

static void memory(fl_comm *p)
{
    enum { N = 100000 };
    void *a, *b, *none;
    float *other = malloc(N * sizeof *other);

    CHECK_OK(p->methods->get_memory(p, N * sizeof(float), &a));
    CHECK_OK(p->methods->get_memory(p, N * sizeof(float), &b));
    CHECK_OK(p->methods->get_memory(p, 0, &none));
    CHECK((uintptr_t)a % 64 == 0 && (uintptr_t)b % 64 == 0);
    for (int i = 0; i < N; i++)
        CHECK(((float *)a)[i] == 0);
    reduce_in(p, a, N);
    reduce_in(p, (float *)b + 1, N - 1);
    reduce_in(p, a, 10);
    /* what one rank has there, another has elsewhere */
    reduce_in(p, p->rank == 0 ? a : other, N);
    reduce_in(p, p->rank == 0 ? a : b, N);
    reduce_in(p, (float *)a + (p->rank == 0 ? 0 : 16), N - 16);
    reduce_in(p, a, N);
    p->methods->free_memory(p, a);
    reduce_in(p, b, N);
    p->methods->free_memory(p, b);
    p->methods->free_memory(p, none);
    p->methods->free_memory(p, NULL);
    free(other);
}

/* Sums in that memory, with work: more than a group holds at a time, calls in
 * between, waited for in another order. */
static void late(fl_comm *p)
{
    enum { N = 40, EACH = 3000 };
    static _Thread_local fl_work *work[N];
    float all = (float)(p->size * (p->size + 1)) / 2, *x, one;
    void *memory;

    CHECK_OK(
        p->methods->get_memory(p, (int64_t)sizeof(float[N][EACH]), &memory));
    x = memory;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < N; i++) {
            int64_t n = round > 0 ? i * (EACH / N) : 0;

            for (int j = 0; j < EACH; j++)
                x[i * EACH + j] = (float)((p->rank + 1) * (i + j));
            CHECK_OK(p->methods->all_reduce(p, FL_ALL_SUM, FL_WIRE_F32,
                                            x + i * EACH, x + i * EACH, n,
                                            &work[i]));
            one = (float)(p->rank + 1);
            if (i % 9 == 0)
                CHECK_OK(p->methods->all_reduce(p, FL_ALL_SUM, FL_WIRE_F32,
                                                &one, &one, 1, NULL));
            CHECK(one == (i % 9 == 0 ? all : (float)(p->rank + 1)));
        }
        for (int i = N; i-- > 0;) {
            int64_t n = round > 0 ? i * (EACH / N) : 0;

            CHECK_OK(p->methods->wait(p, &work[i]));
            for (int j = 0; j < EACH; j++)
                CHECK(x[i * EACH + j] ==
                      (j < n ? all : (float)(p->rank + 1)) * (float)(i + j));
        }
    }
    CHECK_OK(p->methods->barrier(p));
    p->methods->free_memory(p, memory);
}

/* Odd and even ranks, in reverse order; then all but rank 0. */
static void split(fl_comm *p)
{
    fl_comm *child;
    float x = (float)p->rank, want = 0;

    CHECK_OK(p->methods->split(p, p->rank % 2, -p->rank, &child));
    CHECK(child != NULL);
    for (int r = p->rank % 2; r < p->size; r += 2)
        want += (float)r;
    CHECK_INT(child->size, (p->size + 1 - p->rank % 2) / 2);
    CHECK_INT(child->rank, child->size - 1 - p->rank / 2);
    CHECK_OK(child->methods->all_reduce(child, FL_ALL_SUM, FL_WIRE_F32, &x, &x,
                                        1, NULL));
    CHECK(x == want);
    messages(child);
    child->methods->destroy(child);

    CHECK_OK(p->methods->split(p, p->rank == 0 ? -1 : 7, 0, &child));
    CHECK((child == NULL) == (p->rank == 0));
    if (child) {
        CHECK_INT(child->rank, p->rank - 1);
        CHECK_OK(child->methods->barrier(child));
        child->methods->destroy(child);
    }
    CHECK_OK(p->methods->barrier(p));
}

/* What is wrong as it stands is refused, and the group goes on. */
static void refusals(fl_comm *p)
{
    const fl_comm_class *m = p->methods;
    int64_t good[8] = {0}, bad[8] = {-1};
    char x[64] = {0};
    void *memory;
    fl_comm *child;

    CHECK_FAILS(m->all_reduce(p, FL_ALL_SUM, FL_WIRE_F32, x, x, -3, NULL),
                FLEET_EINVAL, "all_reduce: -3 elements");
    CHECK_FAILS(m->all_reduce(p, FL_ALL_MEAN, FL_WIRE_I64, x, x, 1, NULL),
                FLEET_EINVAL, "the mean of i64 is not defined");
    CHECK_FAILS(m->reduce_scatter(p, FL_N_REDUCE, FL_WIRE_F32, x, x, 1, NULL),
                FLEET_EINVAL, "reduce_scatter: no reduction 4");
    CHECK_FAILS(m->all_gather(p, x, x, -1, NULL), FLEET_EINVAL,
                "all_gather: -1 bytes");
    CHECK_FAILS(m->all_to_all_v(p, x, good, x, bad, NULL), FLEET_EINVAL,
                "all_to_all_v: -1 bytes");
    CHECK_FAILS(m->broadcast(p, x, 1, p->size, NULL), FLEET_EINVAL,
                "broadcast: the root is rank");
    CHECK_FAILS(m->broadcast(p, x, -1, 0, NULL), FLEET_EINVAL, "-1 bytes");
    CHECK_FAILS(m->send(p, x, 1, -1, NULL), FLEET_EINVAL,
                "send: the receiver is rank -1");
    CHECK_FAILS(m->recv(p, x, 1, p->size, NULL), FLEET_EINVAL,
                "recv: the sender is rank");
    CHECK_FAILS(m->split(p, -2, 0, &child), FLEET_EINVAL,
                "split: the color is -2");
    CHECK_FAILS(m->get_memory(p, -1, &memory), FLEET_EINVAL,
                "get_memory: -1 bytes");
    CHECK_OK(m->barrier(p));
}

const comm_kit_part comm_kit_healthy[] = {
    {.name = "reductions", .run = reductions},
    {.name = "large", .run = large},
    {.name = "large_scatter", .run = large_scatter},
    {.name = "large_broadcast", .run = large_broadcast},
    {.name = "large_moves", .run = large_moves},
    {.name = "moves", .run = moves},
    {.name = "messages", .run = messages},
    {.name = "works", .run = works},
    {.name = "forgotten", .run = forgotten},
    {.name = "memory", .run = memory},
    {.name = "late", .run = late},
    {.name = "split", .run = split},
    {.name = "refusals", .run = refusals},
    {.name = "by_groups", .run = comm_kit_by_groups},
    {0},
};
