/* sample_memory_test.c - samples in memory: the batches of the files they are
 * of, in any order that is asked for; bounded by their size. */
#define SUITE sample_memory
#include "data_kit.h"
#include "test.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/memory.h"
#include "base/memory_left.h"
#include "data/cache_file.h"
#include "data/memory_exchange.h"
#include "data/memory_reader.h"

enum { LINES = 9000 };

static const fleet_slot slots[] = {
    {.name = "n", .dtype = FLEET_INT64},
    {.name = "x", .dim = 2},
    {.name = "b", .dtype = FLEET_INT64, .dim = -1},
    {.name = "c", .dtype = FLEET_INT64, .dim = -1, .weighted = 1}};

static const fl_memory_limit unbounded;

static const char *write_lines(const char *name, int from, int n)
{
    char *text = malloc((size_t)n * 100 + 1), *to = text;
    uint64_t r = (uint64_t)from + 1;
    const char *path;

    for (int i = from; i < from + n; i++) {
        to += sprintf(to, "1 %d 2 %d.5 -3", i, i % 7);
        to += sprintf(to, i % 3 ? " 1 %d" : " 0", (int)(data_random(&r) >> 40));
        to += sprintf(to, i % 4 ? " 2 7:0.25 %d\n" : " 0\n", i % 300);
    }
    *to = 0;
    path = test_file(name, text);
    free(text);
    return path;
}

static fl_stream_spec spec_of(const char *const *files, int n)
{
    fl_stream_spec spec =
        data_spec(FLEET_MULTISLOT, slots, DATA_N(slots), files, n);

    spec.batch_size = 500;
    return spec;
}

/* The spec, from memory. */
static fl_stream_spec from_memory(fl_stream_spec spec, fl_memory_view *v)
{
    spec.memory = v;
    spec.share_index = 0;
    spec.share_count = 1;
    return spec;
}

static void load(fl_sample_memory *m, const fl_stream_spec *spec)
{
    *m = (fl_sample_memory){.n_block = 0};
    CHECK_OK(fl_sample_memory_load(m, spec, 0, &unbounded));
}

TEST(batches_are_those_of_the_files)
{
    const char *files[] = {write_lines("a", 0, LINES), test_file("b", "\n"),
                           write_lines("c", LINES, 20)};
    const fl_stream_spec spec = spec_of(files, 3);
    const data_dump text = data_read(&spec);
    fl_sample_memory m;
    fl_memory_view v = {.memory = &m};

    CHECK_INT(text.rows, LINES + 20);
    load(&m, &spec);
    CHECK(m.n_block > 2);
    for (int threads = 1; threads <= 3; threads += 2) {
        fl_stream_spec held = from_memory(spec, &v);
        data_dump d;

        held.n_thread = threads;
        d = data_read(&held);
        CHECK(data_same(&d, &text));
        CHECK_INT(m.users, 0);
    }
    CHECK(m.bytes > 0 && (uint64_t)m.bytes < 60u * (LINES + 20));
    fl_sample_memory_done(&m);
}

/* Each batch of two streams alike, but for its index. */
static void check_batches(const fl_stream_spec *one,
                          const fl_stream_spec *other)
{
    fleet_status status[2];
    fl_stream *s[2];
    fl_batch *b[2];

    CHECK_OK(fl_stream_open(&s[0], one));
    CHECK_OK(fl_stream_open(&s[1], other));
    for (;;) {
        for (int i = 0; i < 2; i++)
            status[i] = fl_stream_next(s[i], &b[i]);
        CHECK_INT(status[0], status[1]);
        if (status[0] != FLEET_OK)
            break;
        CHECK_INT(b[0]->rows, b[1]->rows);
        for (int i = 0; i < DATA_N(slots); i++) {
            const fl_slot_data *x = &b[0]->slot[i], *y = &b[1]->slot[i];
            const size_t rows = (size_t)b[0]->rows;
            const size_t n = x->offsets ? (size_t)x->offsets[rows]
                                        : rows * (size_t)(i == 1 ? 2 : 1);

            if (x->offsets)
                CHECK(memcmp(x->offsets, y->offsets, (rows + 1) * 8) == 0);
            CHECK(memcmp(x->values, y->values, n * (i == 1 ? 4 : 8)) == 0);
            if (i == 3)
                CHECK(memcmp(x->weights, y->weights, n * 4) == 0);
        }
        fl_stream_release(s[0], b[0]);
        fl_stream_release(s[1], b[1]);
    }
    CHECK_INT(status[0], FLEET_EEND);
    fl_stream_close(s[0]);
    fl_stream_close(s[1]);
}

/* Batches of a share are many to a block; they keep their samples. */
TEST(a_share_of_batches_is_the_files_share)
{
    const char *files[] = {write_lines("a", 0, 8000)};
    fl_stream_spec spec = spec_of(files, 1);
    fl_sample_memory m;
    fl_memory_view v = {.memory = &m};

    spec.batch_size = 7;
    spec.share_count = 3;
    for (spec.share_index = 0; spec.share_index < 3; spec.share_index++) {
        const fl_stream_spec held = from_memory(spec, &v);

        load(&m, &spec);
        CHECK_INT((int64_t)m.n_block, 1);
        check_batches(&spec, &held);
        fl_sample_memory_done(&m);
    }
}

/* A share's batches are many to a block of memory, and none of a cache. */
TEST(a_cache_that_a_share_makes_has_blocks_as_ever)
{
    const char *file = write_lines("a", 0, LINES);
    fl_stream_spec spec = spec_of(&file, 1);
    const atomic_bool goes_on = false;
    fl_cache_state state = {false};
    fl_sample_memory m;
    fl_memory_view v = {.memory = &m};
    fl_stream_spec held;
    fl_cache_file c;

    spec.batch_size = 7;
    spec.share_count = 2;
    held = from_memory(spec, &v);
    spec.cache = &state;
    load(&m, &spec);
    spec.cache = NULL;
    check_batches(&spec, &held);
    CHECK_OK(fl_cache_file_open(&c, file, fl_cache_key(&spec), &goes_on));
    CHECK_INT((int64_t)c.rows, LINES);
    CHECK_INT((int64_t)c.n_block, 3);
    for (size_t i = 0; i < c.n_block; i++)
        CHECK(c.index[i].rows <= 4096);
    fl_cache_file_close(&c);
    fl_free(state.whole);
    fl_sample_memory_done(&m);
}

typedef struct asked {
    int until, n; /* how often it goes well, and how often it was asked */
    fleet_status then;
} asked;

static fleet_status answer(void *job)
{
    asked *a = job;

    return a->n++ < a->until ? FLEET_OK : a->then;
}

/* Asked with each of the three blocks and at the end; also a stop, which is
 * said as the data's end is, leaves no half. */
TEST(a_job_that_ends_ends_a_load)
{
    static const fleet_status ends[] = {FLEET_EPEER, FLEET_EEND};
    const char *file = write_lines("a", 0, LINES);
    fl_stream_spec spec = spec_of(&file, 1);
    fl_sample_memory m;

    for (int i = 0; i < 8; i++) {
        asked a = {.until = i / 2, .then = ends[i % 2]};

        spec.job_status = answer;
        spec.job = &a;
        m = (fl_sample_memory){.n_block = 0};
        CHECK_STATUS(fl_sample_memory_load(&m, &spec, 0, &unbounded), a.then);
        CHECK(!m.block && m.rows == 0 && m.bytes == 0);
    }
    test_check_leaks();
}

/* The numbers of the lines, as a stream has them. */
static void read_numbers(const fl_stream_spec *spec, int64_t *to, int64_t n)
{
    fl_stream *s;
    fl_batch *b;
    int64_t at = 0;
    fleet_status status;

    CHECK_OK(fl_stream_open(&s, spec));
    while ((status = fl_stream_next(s, &b)) == FLEET_OK) {
        CHECK(at + b->rows <= n);
        memcpy(to + at, b->slot[0].values, (size_t)b->rows * sizeof *to);
        at += b->rows;
        fl_stream_release(s, b);
    }
    CHECK_STATUS(status, FLEET_EEND);
    CHECK_INT(at, n);
    fl_stream_close(s);
}

TEST(a_shuffled_order_has_each_sample_once_and_goes_on_in_its_middle)
{
    static int64_t all[LINES], rest[LINES];
    const char *files[] = {write_lines("a", 0, LINES)};
    fl_stream_spec spec = spec_of(files, 1);
    static bool seen[LINES];
    fl_sample_memory m;
    fl_memory_view v = {.memory = &m, .shuffled = true};
    int stay = 0;

    load(&m, &spec);
    fl_permutation_init(&v.order, LINES, 5);
    spec = from_memory(spec, &v);
    read_numbers(&spec, all, LINES);
    for (int i = 0; i < LINES; i++) {
        CHECK(!seen[all[i]]);
        seen[all[i]] = true;
        stay += all[i] == i;
        CHECK_INT(all[i], (int64_t)fl_permutation_at(&v.order, (uint64_t)i));
    }
    CHECK(stay < 10);
    spec.first_batch = 3;
    spec.n_thread = 2;
    read_numbers(&spec, rest, LINES - 1500);
    CHECK(memcmp(rest, all + 1500, (LINES - 1500) * sizeof *all) == 0);
    fl_sample_memory_done(&m);
}

/* A value of x says which line it is of, up to 7. */
TEST(values_of_a_moved_slot_are_those_of_other_rows)
{
    const char *files[] = {write_lines("a", 0, 1000)};
    const fl_stream_spec spec = spec_of(files, 1);
    const bool moved[DATA_N(slots)] = {false, true, true, true};
    fl_sample_memory m;
    fl_memory_view v = {.memory = &m, .moved = moved};
    fl_stream_spec held = from_memory(spec, &v);
    const fl_batch *b;
    int same = 0;

    load(&m, &spec);
    fl_permutation_init(&v.other, 1000, 9);
    held.batch_size = 1000;
    b = data_first(&held);
    for (int64_t i = 0; i < b->rows; i++) {
        const int64_t other = (int64_t)fl_permutation_at(&v.other, (uint64_t)i);

        CHECK_INT(((int64_t *)b->slot[0].values)[i], i);
        CHECK(((float *)b->slot[1].values)[2 * i] == (float)(other % 7) + 0.5f);
        CHECK_INT(b->slot[2].offsets[i + 1] - b->slot[2].offsets[i],
                  other % 3 ? 1 : 0);
        if (other % 4)
            CHECK_INT(((int64_t *)b->slot[3].values)[b->slot[3].offsets[i] + 1],
                      other % 300);
        same += other == i;
    }
    CHECK(same < 5);
    data_first(&spec); /* the other stream closes */
    fl_sample_memory_done(&m);
}

TEST(an_order_is_one_of_its_numbers_and_has_both_directions)
{
    static bool seen[1000];
    fl_permutation p;

    for (uint64_t n = 1; n <= 1000; n += n < 20 ? 1 : 245) {
        memset(seen, 0, sizeof seen);
        fl_permutation_init(&p, n, n);
        for (uint64_t i = 0; i < n; i++) {
            const uint64_t x = fl_permutation_at(&p, i);

            CHECK(x < n && !seen[x]);
            seen[x] = true;
            CHECK(fl_permutation_place(&p, x) == i);
        }
    }
}

/* Of eight numbers each stands at each place about as often: 25 of 200. */
TEST(orders_of_other_seeds_are_others_and_favour_no_place)
{
    int at[8][8] = {{0}};
    fl_permutation p;

    for (uint64_t seed = 0; seed < 200; seed++) {
        fl_permutation_init(&p, 8, seed);
        for (uint64_t i = 0; i < 8; i++)
            at[i][fl_permutation_at(&p, i)]++;
    }
    for (int i = 0; i < 64; i++)
        CHECK(at[i / 8][i % 8] > 8 && at[i / 8][i % 8] < 48);
}

TEST(more_than_the_limit_is_refused_with_its_size)
{
    const char *files[] = {write_lines("a", 0, LINES)};
    const fl_stream_spec spec = spec_of(files, 1);
    fl_memory_limit limit = {.most = 0};
    fl_sample_memory m, whole;

    load(&whole, &spec);
    m = (fl_sample_memory){.n_block = 0};
    limit.most = whole.bytes - 1;
    CHECK_FAILS(fl_sample_memory_load(&m, &spec, 0, &limit), FLEET_ENOMEM,
                "take 0.3 MB of memory, all about 0.3 MB, and memory_limit is "
                "0.3 MB");
    CHECK(m.n_block == 0 && m.bytes == 0 && !m.block);
    limit = (fl_memory_limit){.most = whole.bytes + 10, .used = 11};
    CHECK_FAILS(fl_sample_memory_load(&m, &spec, 0, &limit), FLEET_ENOMEM,
                "of which other samples have some");
    limit.used = 10;
    CHECK_OK(fl_sample_memory_load(&m, &spec, 0, &limit));
    CHECK_INT(m.bytes, whole.bytes);
    fl_sample_memory_done(&m);
    fl_sample_memory_done(&whole);
}

/* Also where memory runs out at any allocation. */
TEST(a_load_that_fails_leaves_nothing)
{
    const char *files[] = {write_lines("a", 0, 300)};
    const fl_stream_spec spec = spec_of(files, 1);
    fleet_status status = FLEET_ENOMEM;
    fl_sample_memory m = {.n_block = 0};

    for (int64_t n = 1; status != FLEET_OK; n++) {
        CHECK(n < 1000);
        fl_memory_fail_at(n, true);
        status = fl_sample_memory_load(&m, &spec, 0, &unbounded);
        fl_memory_fail_at(0, false);
        if (status != FLEET_OK)
            CHECK(status == FLEET_ENOMEM && !m.block && m.bytes == 0);
    }
    CHECK_INT((int64_t)m.rows, 300);
    fl_sample_memory_done(&m);
    test_check_leaks();
}

/* --- over workers --------------------------------------------------------- */

enum { MOST = 3, TOLD = 1 << 20 };

/* Workers that are threads. A round copies messages between two barriers. */
typedef struct room {
    pthread_barrier_t barrier;
    const char *const *out[MOST];
    const int64_t *to[MOST];
    int n;
    bool twice; /* worker 0 says what worker 1 has said */
} room;

typedef struct member {
    room *room;
    int index;
    const fl_stream_spec *spec;
    fl_memory_share share;
    fl_memory_limit limit;
    uint64_t seed, before; /* before 0: as loaded */
    fl_sample_memory held, m;
    char *said[MOST];
    fleet_status status;
    char error[300];
    pthread_t thread;
} member;

static fleet_status swap_in_room(void *arg, const char *const *out,
                                 const int64_t *to, const char **in,
                                 int64_t *from)
{
    member *w = arg;
    room *r = w->room;
    int gives_up = -1;

    r->out[w->index] = out;
    r->to[w->index] = to;
    pthread_barrier_wait(&r->barrier);
    for (int i = 0; i < r->n; i++) {
        const int k = r->twice && i == 0 ? 1 : i;

        from[i] = r->to[k][w->index];
        CHECK(from[i] < TOLD);
        if (from[i] < 0)
            gives_up = i;
        else
            memcpy(w->said[i], r->out[k][w->index], (size_t)from[i]);
        in[i] = w->said[i];
    }
    pthread_barrier_wait(&r->barrier);
    return gives_up < 0 ? FLEET_OK
                        : fl_fail(FLEET_EPEER, "worker %d gives up", gives_up);
}

static void *run_member(void *arg)
{
    member *w = arg;
    const fl_memory_swap swap = {w, w->index, w->room->n, swap_in_room};
    fl_permutation before, after;
    fl_memory_origin origin = {.shared = true};

    fl_permutation_init(&after, w->share.rows, w->seed);
    fl_permutation_init(&before, w->share.rows, w->before);
    if (w->before)
        origin.before = &before;
    w->status = fl_memory_exchange(&w->held, &origin, &w->share, &after,
                                   w->spec, &swap, &w->limit, &w->m);
    snprintf(w->error, sizeof w->error, "%s", fleet_last_error());
    return NULL;
}

/* n workers of a file of ROWS lines, in batches of 7. */
enum { ROWS = 9100 };

static void open_members(member *w, room *r, int n, fl_stream_spec *spec)
{
    static const char *file;

    file = write_lines("a", 0, ROWS);
    *spec = spec_of(&file, 1);
    spec->batch_size = 7;
    *r = (room){.n = n};
    pthread_barrier_init(&r->barrier, NULL, (unsigned)n);
    for (int i = 0; i < n; i++) {
        fl_stream_spec own = *spec;

        own.share_count = n;
        own.share_index = i;
        w[i] = (member){.room = r,
                        .index = i,
                        .spec = spec,
                        .share = {ROWS, 7, (uint64_t)n},
                        .seed = 5};
        load(&w[i].held, &own);
        for (int k = 0; k < n; k++)
            CHECK((w[i].said[k] = malloc(TOLD)) != NULL);
    }
}

static void run_members(member *w, int n)
{
    for (int i = 0; i < n; i++)
        CHECK(pthread_create(&w[i].thread, NULL, run_member, &w[i]) == 0);
    for (int i = 0; i < n; i++)
        pthread_join(w[i].thread, NULL);
}

static void close_members(member *w, int n)
{
    pthread_barrier_destroy(&w->room->barrier);
    for (int i = 0; i < n; i++) {
        fl_sample_memory_done(&w[i].held);
        fl_sample_memory_done(&w[i].m);
        for (int k = 0; k < n; k++)
            free(w[i].said[k]);
    }
}

/* Batch b of the order is worker b mod n's; lines are known by their values. */
static void check_order(member *w, int n, uint64_t seed)
{
    static int64_t got[ROWS];
    fl_permutation order;

    fl_permutation_init(&order, ROWS, seed);
    for (int i = 0; i < n; i++) {
        fl_memory_view v = {.memory = &w[i].m};
        const fl_stream_spec held = from_memory(*w[i].spec, &v);
        const int64_t rows = (int64_t)fl_memory_rows(&w[i].share, (uint64_t)i);

        CHECK_OK(w[i].status);
        read_numbers(&held, got, rows);
        for (int64_t k = 0; k < rows; k++) {
            const uint64_t place =
                fl_memory_place(&w[i].share, (uint64_t)i, (uint64_t)k);
            const fl_memory_block *b =
                fl_sample_memory_find(&w[i].m, (uint64_t)k);

            CHECK_INT(got[k], (int64_t)fl_permutation_at(&order, place));
            CHECK_INT(fl_memory_line(b->from[(uint64_t)k - b->first]),
                      got[k] + 1);
        }
    }
}

TEST(samples_change_workers_as_the_order_says_once_and_again)
{
    fl_stream_spec spec;
    member w[MOST];
    room r;

    for (int n = 1; n <= MOST; n++) {
        open_members(w, &r, n, &spec);
        run_members(w, n);
        check_order(w, n, 5);
        for (int i = 0; i < n; i++) {
            fl_sample_memory_done(&w[i].held);
            w[i].held = w[i].m;
            w[i].m = (fl_sample_memory){.n_block = 0};
            w[i].before = 5;
            w[i].seed = 6;
        }
        run_members(w, n);
        check_order(w, n, 6);
        close_members(w, n);
    }
}

TEST(a_worker_without_memory_tells_the_others)
{
    fl_stream_spec spec;
    member w[2];
    room r;

    for (int plans = 0; plans < 2; plans++) {
        open_members(w, &r, 2, &spec);
        /* less than a block; and less than the plan, of 24 bytes a sample */
        w[0].limit.most = 20000 + (plans ? 24 * ROWS / 2 : 0);
        run_members(w, 2);
        CHECK_STATUS(w[0].status, FLEET_ENOMEM);
        CHECK_CONTAINS(w[0].error, plans ? "take" : "0.1 MB besides them");
        CHECK_STATUS(w[1].status, FLEET_EPEER);
        CHECK_CONTAINS(w[1].error, "worker 0 gives up");
        CHECK(!w[0].m.block && !w[1].m.block);
        close_members(w, 2);
    }
}

TEST(a_sample_that_comes_twice_is_refused)
{
    fl_stream_spec spec;
    member w[2];
    room r;

    open_members(w, &r, 2, &spec);
    r.twice = true;
    run_members(w, 2);
    for (int i = 0; i < 2; i++) {
        CHECK_STATUS(w[i].status, FLEET_EFORMAT);
        CHECK_CONTAINS(w[i].error, "is no samples of these slots");
    }
    close_members(w, 2);
}

/* --- what the system has left --------------------------------------------- */

static void put_file(const char *path, const char *text)
{
    char at[4000];

    snprintf(at, sizeof at, "%s", test_path(path));
    for (char *slash = strchr(at + 1, '/'); slash;
         slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(at, 0700);
        *slash = '/';
    }
    test_file(path, text);
}

TEST(what_is_left_is_that_of_the_system_or_of_a_group)
{
    const char *root = test_folder();

    CHECK(fl_memory_left_below("/nowhere") == INT64_MAX);
    CHECK(fl_memory_left() > 0 && fl_memory_left() < (int64_t)1 << 50);
    put_file("proc/meminfo", "MemTotal: 9000 kB\nMemAvailable:   5000 kB\n");
    CHECK_INT(fl_memory_left_below(root), 5000 * 1024);
    put_file("proc/self/cgroup", "0::/a/b\n");
    put_file("sys/fs/cgroup/a/b/memory.max", "max\n");
    put_file("sys/fs/cgroup/a/b/memory.current", "7\n");
    CHECK_INT(fl_memory_left_below(root), 5000 * 1024);
    put_file("sys/fs/cgroup/a/memory.max", "1000000\n");
    put_file("sys/fs/cgroup/a/memory.current", "800000\n");
    CHECK_INT(fl_memory_left_below(root), 200000);
    put_file("sys/fs/cgroup/a/memory.stat", "anon 5\ninactive_file 300000\n");
    CHECK_INT(fl_memory_left_below(root), 500000);
    put_file("sys/fs/cgroup/memory.max", "400\n"); /* of a container */
    put_file("sys/fs/cgroup/memory.current", "500\n");
    CHECK_INT(fl_memory_left_below(root), 0);
    put_file("proc/self/cgroup", "4:cpu,memory:/c\n");
    put_file("sys/fs/cgroup/memory/c/memory.limit_in_bytes", "900\n");
    put_file("sys/fs/cgroup/memory/c/memory.usage_in_bytes", "200\n");
    CHECK_INT(fl_memory_left_below(root), 700);
}
