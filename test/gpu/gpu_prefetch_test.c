/* gpu_prefetch_test.c - rows that servers keep are on the GPU before their
 * batch's turn: copied while the batch before is computed, with the same bits,
 * whatever fails. fake_remote.h is the servers, and at the end real ones
 * are. */
#define _GNU_SOURCE
#define SUITE gpu_prefetch
#include "workers_kit.h"
#include "gpu_kit.h"
#include "ps_kit.h"
#include "test.h"

#include <glob.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json/json.h"
#include "base/memory.h"

enum { BATCHES = 6 };

/* When the rows of a next batch come: after the GPU has computed, or while it
 * does. They are the same ones. */
typedef enum comes { LATE, EARLY } comes;

static void open_worker(crew *c, bool sync, kit_options o, comes when)
{
    o.device = "gpu:0";
    crew_open(c, 1, sync, KIT_CTR, &o);
    c->w[0].looks = true;
    c->w[0].comes_early = when == EARLY;
}

/* --- in a trace ---------------------------------------------------------- */

enum { MOST_MOMENTS = 400 };

typedef struct moment {
    double at;
    char what;
} moment;

static int earlier(const void *a, const void *b)
{
    const moment *x = a, *y = b;

    return x->at < y->at ? -1 : x->at > y->at;
}

/* '(' and ')' of an iteration: from its feeds until it is known that the GPU
 * has computed; 'r': rows are sent there; 'p': a push. Else 0. */
static moment moment_of(const fl_at *e)
{
    fl_at name = fl_at_key(e, "name"), kind = fl_at_key(e, "ph");
    fl_at ts = fl_at_key(e, "ts");
    const char *text, *phase;
    moment m = {0};

    CHECK_OK(fl_at_string(&name, &text));
    CHECK_OK(fl_at_string(&kind, &phase));
    CHECK_OK(fl_at_double(&ts, 0, 1e18, &m.at));
    m.what = strcmp(text, "gpu") == 0        ? (*phase == 'b' ? '(' : ')')
             : strcmp(text, "gpu.rows") == 0 ? 'r'
             : strcmp(text, "ps.push") == 0  ? 'p'
                                             : 0;
    return m;
}

static int read_moments(const char *file, moment m[MOST_MOMENTS])
{
    fl_json *json;
    size_t size;
    char *text;
    fl_at root, list;
    int n = 0;

    CHECK_OK(fl_file_read(file, &text, &size));
    CHECK_OK(fl_json_parse(text, size, "trace", &json));
    fl_free(text);
    root = fl_at_root(json);
    list = fl_at_key(&root, "traceEvents");
    for (fl_at e = fl_at_first(&list); e.json && n < MOST_MOMENTS;
         fl_at_next(&list, &e)) {
        m[n] = moment_of(&e);
        n += m[n].what != 0;
    }
    fl_json_free(json);
    qsort(m, (size_t)n, sizeof *m, earlier);
    return n;
}

/* What the worker's trace in the folder has, in its order. */
static const char *order_in(const char *folder)
{
    static char text[MOST_MOMENTS + 1];
    moment m[MOST_MOMENTS];
    char pattern[600];
    glob_t found;
    int n;

    snprintf(pattern, sizeof pattern, "%s/worker-0.*.json", folder);
    CHECK(glob(pattern, 0, NULL, &found) == 0 && found.gl_pathc == 1);
    n = read_moments(found.gl_pathv[0], m);
    globfree(&found);
    for (int i = 0; i < n; i++)
        text[i] = m[i].what;
    text[n] = 0;
    return text;
}

static const char *order_of(bool sync, kit_options o, comes when, int n)
{
    const char *folder = test_path(sync            ? "sync"
                                   : when == EARLY ? "early"
                                                   : "late");
    crew c;
    work k;

    setenv("FLEET_TRACE", folder, 1);
    open_worker(&c, sync, o, when);
    work_open(&k, &c.m[0], n, WORK_ROWS);
    for (int i = 0; i < n; i++)
        CHECK_OK(crew_train(c.m[0].e, &k, i, 1));
    work_close(&k);
    crew_close(&c);
    unsetenv("FLEET_TRACE");
    return order_in(folder);
}

TEST(rows_of_the_next_batch_are_sent_while_the_gpu_computes)
{
    gpu_kit_open();
    CHECK_TEXT(order_of(false, (kit_options){0}, EARLY, 4), "(rr)p(r)p(r)p()p");
    gpu_kit_close();
}

TEST(rows_that_are_late_are_sent_at_the_beginning_of_their_iteration)
{
    gpu_kit_open();
    CHECK_TEXT(order_of(false, (kit_options){0}, LATE, 4), "(r)p(r)p(r)p(r)p");
    gpu_kit_close();
}

/* In sync those of after an update come after it, others may be early. */
TEST(in_sync_rows_are_sent_ahead_inside_a_merge_group)
{
    gpu_kit_open();
    CHECK_TEXT(order_of(true, (kit_options){.merge = 2}, EARLY, 4),
               "(rr)()p(rr)()p");
    gpu_kit_close();
}

static const fl_remote_class *servers;

/* And from then on the GPU does not end. */
static bool come_last(fl_remote *x, int slot)
{
    gpu_kit_control()->set_busy(true);
    return servers->came(x, slot);
}

static void answer_by(fl_remote *x, bool (*came)(fl_remote *, int))
{
    static fl_remote_class methods;

    servers = x->methods;
    methods = *servers;
    methods.came = came;
    x->methods = &methods;
}

TEST(rows_do_not_wait_for_what_the_gpu_computes)
{
    const char *folder = test_path("trace");
    crew c;
    work k;

    gpu_kit_open();
    setenv("FLEET_TRACE", folder, 1);
    open_worker(&c, false, (kit_options){0}, EARLY);
    work_open(&k, &c.m[0], 2, WORK_ROWS);
    answer_by(&c.w[0].x, come_last);
    c.m[0].e->place.gpu->deadline_ms = 20;
    CHECK_FAILS(crew_train(c.m[0].e, &k, 0, 1), FLEET_ETIMEDOUT,
                "was not done after 20 ms");
    gpu_kit_control()->set_busy(false);
    CHECK_OK(fleet_executor_flush(c.m[0].e));
    work_close(&k);
    crew_close(&c);
    unsetenv("FLEET_TRACE");
    CHECK_TEXT(order_in(folder), "(rr");
    gpu_kit_close();
}

/* --- the same bits ------------------------------------------------------- */

static uint64_t hash_of(bool sync, kit_options o, comes when, int64_t last)
{
    uint64_t hash;
    crew c;
    work k;

    open_worker(&c, sync, o, when);
    work_open(&k, &c.m[0], BATCHES, last);
    for (int i = 0; i < BATCHES; i++)
        CHECK_OK(crew_train(c.m[0].e, &k, i, 1));
    CHECK_OK(fleet_executor_flush(c.m[0].e));
    hash = fake_server_hash(&c.server);
    work_close(&k);
    crew_close(&c);
    return hash;
}

/* Also of batches that have a plan of their own. */
static void check_same(bool sync, kit_options o)
{
    static const int64_t last[] = {20, WORK_ROWS, 400};

    for (int i = 0; i < 3; i++)
        CHECK(hash_of(sync, o, EARLY, last[i]) ==
              hash_of(sync, o, LATE, last[i]));
}

TEST(rows_that_are_there_early_train_to_the_same_bits)
{
    gpu_kit_open();
    check_same(false, (kit_options){0});
    check_same(false, (kit_options){.threads = 2, .max_batch = 400});
    check_same(false,
               (kit_options){.merge = 2, .clip = 0.1f, .max_batch = 400});
    check_same(false, (kit_options){.no_graphs = true});
    check_same(true,
               (kit_options){.merge = 3, .optimizer = "sgd", .max_batch = 400});
    gpu_kit_close();
}

/* As the CPU has them, and as a fetch finds them, which needs them there. */
TEST(rows_that_are_fetched_stay_on_the_cpu)
{
    static float here[WORK_ROWS * 9], there[WORK_ROWS * 9];
    kit_options o = {0};

    gpu_kit_open();
    for (int i = 0; i < 2; i++) {
        const fleet_var *rows;
        crew c;
        work k;

        o.device = i ? "gpu:0" : NULL;
        crew_open(&c, 1, false, KIT_CTR, &o);
        work_open(&k, &c.m[0], 1, WORK_ROWS);
        rows = fleet_program_var(c.m[0].p, "sparse_embedding_0.tmp");
        CHECK_OK(
            kit_fetch(c.m[0].e, k.b[0], rows, i ? there : here, WORK_ROWS * 9));
        work_close(&k);
        crew_close(&c);
    }
    CHECK(memcmp(here, there, sizeof here) == 0);
    CHECK(here[0] != 0);
    gpu_kit_close();
}

/* --- what fails ---------------------------------------------------------- */

/* Which of the batches fail, as bits; the call once. */
static unsigned failed_of(fake_call call, int nth, comes when, uint64_t *hash)
{
    unsigned failed = 0;
    crew c;
    work k;

    open_worker(&c, false, (kit_options){0}, when);
    work_open(&k, &c.m[0], BATCHES, WORK_ROWS);
    c.w[0].fail_at[call] = nth;
    for (int i = 0; i < BATCHES; i++)
        if (crew_train(c.m[0].e, &k, i, 1) != FLEET_OK) {
            CHECK_TEXT(fleet_last_error(), "server 3 is not what it was");
            CHECK(!c.w[0].x.taken[0] && !c.w[0].x.taken[1]);
            failed |= 1u << i;
        }
    CHECK_OK(fleet_executor_flush(c.m[0].e));
    *hash = fake_server_hash(&c.server);
    work_close(&k);
    crew_close(&c);
    return failed;
}

TEST(a_call_to_the_servers_that_fails_is_told_by_its_own_batch)
{
    uint64_t early, late;

    gpu_kit_open();
    for (int nth = 1; nth <= 3; nth++) {
        CHECK_INT(failed_of(FAKE_ARRIVE, nth, EARLY, &early), 1u << (nth - 1));
        CHECK_INT(failed_of(FAKE_ARRIVE, nth, LATE, &late), 1u << (nth - 1));
        CHECK(early == late);
        CHECK_INT(failed_of(FAKE_PUSH, nth, EARLY, &early), 1u << (nth - 1));
        CHECK_INT(failed_of(FAKE_PUSH, nth, LATE, &late), 1u << (nth - 1));
        CHECK(early == late);
        CHECK_INT(failed_of(FAKE_PULL, nth, EARLY, &early), nth == 1);
    }
    gpu_kit_close();
}

static uint64_t hash_with_nan(comes when)
{
    uint64_t hash;
    crew c;
    work k;

    open_worker(&c, false, (kit_options){0}, when);
    work_open(&k, &c.m[0], BATCHES, WORK_ROWS);
    ((float *)(uintptr_t)k.b[2]->feed[0].data)[7] = NAN;
    for (int i = 0; i < BATCHES; i++)
        if (i == 2)
            CHECK_FAILS(crew_train(c.m[0].e, &k, i, 1), FLEET_ENUMERIC,
                        "batch 3: the loss is not finite");
        else
            CHECK_OK(crew_train(c.m[0].e, &k, i, 1));
    CHECK_INT(c.server.updates, BATCHES - 1);
    hash = fake_server_hash(&c.server);
    work_close(&k);
    crew_close(&c);
    return hash;
}

TEST(a_batch_that_fails_takes_the_rows_of_the_next_with_it_and_no_more)
{
    gpu_kit_open();
    CHECK(hash_with_nan(EARLY) == hash_with_nan(LATE));
    gpu_kit_close();
}

/* A GPU whose n-th copy of rows fails. */
static struct {
    const fl_device_class *real;
    fl_device_class methods;
    int fails_at;
} broken;

static fleet_status copy_rows(fl_device *d, fl_queue *q, void *to, size_t ld_to,
                              const void *from, size_t ld_from, size_t bytes,
                              size_t n, fl_copy kind)
{
    if (kind == FL_TO_DEVICE && broken.fails_at > 0 && --broken.fails_at == 0)
        return fl_fail(FLEET_EIO, "the bus is gone");
    return broken.real->copy_rows(d, q, to, ld_to, from, ld_from, bytes, n,
                                  kind);
}

static void break_copies(fl_gpu *g, int nth)
{
    broken.real = g->m;
    broken.methods = *g->m;
    broken.methods.copy_rows = copy_rows;
    broken.fails_at = nth;
    g->m = &broken.methods;
}

/* Which batches fail, as bits. */
static unsigned failed_copies(int nth, bool skip_second, uint64_t *hash)
{
    unsigned failed = 0;
    crew c;
    work k;

    open_worker(&c, true, (kit_options){.merge = 1 + !skip_second}, EARLY);
    work_open(&k, &c.m[0], BATCHES, WORK_ROWS);
    break_copies(c.m[0].e->place.gpu, nth);
    for (int i = 0; i < BATCHES; i++)
        if (!(skip_second && nth == 0 && i == 1) &&
            crew_train(c.m[0].e, &k, i, 1) != FLEET_OK) {
            CHECK_TEXT(fleet_last_error(), "the bus is gone");
            failed |= 1u << i;
        }
    CHECK_OK(fleet_executor_flush(c.m[0].e));
    *hash = fake_server_hash(&c.server);
    work_close(&k);
    crew_close(&c);
    return failed;
}

TEST(a_copy_ahead_that_fails_is_made_again_by_its_own_batch)
{
    uint64_t want, hash;

    gpu_kit_open();
    CHECK_INT(failed_copies(0, false, &want), 0);
    CHECK_INT(failed_copies(2, false, &hash), 0); /* ahead, of batch 2 */
    CHECK_INT(broken.fails_at, 0);
    CHECK(hash == want);
    gpu_kit_close();
}

TEST(a_copy_that_fails_is_told_and_costs_its_batch_alone)
{
    uint64_t want, hash;

    gpu_kit_open();
    CHECK_INT(failed_copies(0, true, &want), 0);
    CHECK_INT(failed_copies(2, true, &hash), 2); /* its own, of batch 2 */
    CHECK(hash == want);
    gpu_kit_close();
}

/* The n-th allocation fails, of the GPU's memory or of pinned memory; the batch
 * is trained once there is some. */
static bool train_without_memory(int n, uint64_t *hash)
{
    bool failed = false;
    crew c;
    work k;

    open_worker(&c, true, (kit_options){.merge = 2}, EARLY);
    work_open(&k, &c.m[0], 4, WORK_ROWS);
    gpu_kit_control()->fail_at(n);
    for (int i = 0; i < 4; i++)
        if (crew_train(c.m[0].e, &k, i, 1) != FLEET_OK) {
            CHECK_INT(fleet_last_status(), FLEET_ENOMEM);
            CHECK_CONTAINS(fleet_last_error(), "cuda: ");
            gpu_kit_control()->fail_at(0);
            failed = true;
            i = -1 - c.m[0].e->micro; /* from the beginning: it is the first */
            CHECK_INT(c.server.updates, 0);
        }
    failed |= gpu_kit_control()->failed(); /* there was another way */
    gpu_kit_control()->fail_at(0);
    *hash = fake_server_hash(&c.server);
    work_close(&k);
    crew_close(&c);
    return failed;
}

TEST(memory_that_is_not_there_is_told_and_nothing_is_lost)
{
    uint64_t want, hash;
    int n = 1;

    gpu_kit_open();
    CHECK(!train_without_memory(0, &want));
    for (; n < 300 && train_without_memory(n, &hash); n++)
        CHECK(hash == want);
    CHECK(n > 20 && n < 300);
    gpu_kit_close();
}

/* --- real servers -------------------------------------------------------- */

enum { LINES = 200, WAIT_MS = 20000 };

/* Until they have come, however fast the GPU is. */
static bool comes_soon(fl_remote *x, int slot)
{
    int64_t end = fl_now_ms() + WAIT_MS;

    while (!servers->came(x, slot))
        CHECK(fl_now_ms() < end);
    return true;
}

static bool never_comes(fl_remote *x, int slot)
{
    (void)x;
    (void)slot;
    return false;
}

static fleet_status work_at(ps_node *n, bool (*came)(fl_remote *, int))
{
    FL_TRY(ps_begin(n));
    answer_by(n->s.f->store->remote, came);
    FL_TRY(ps_passes(n, 1));
    return ps_end(n);
}

static fleet_status work_early(ps_node *n)
{
    return work_at(n, comes_soon);
}

static fleet_status work_late(ps_node *n)
{
    return work_at(n, never_comes);
}

static void open_on_gpu(ps_node *n, const fleet_options *o)
{
    scene_open_as(&n->s, o, &n->job->how);
    if (n->server)
        return;
    CHECK_OK(fleet_program_place(n->s.p, FLEET_GPU(0), NULL));
    scene_data_of(&n->s, n->job->file, 1, PS_BATCH, 1, 0);
}

static uint64_t hash_of_job(ps_body *body, const char *folder)
{
    ps_job j = {.file = {scene_file("a.txt", LINES, 1)},
                .how.a_sync = true,
                .work = body,
                .open = open_on_gpu};
    uint64_t hash;

    setenv("FLEET_TRACE", folder, 1);
    hash = ps_hash(&j);
    unsetenv("FLEET_TRACE");
    return hash;
}

/* A worker that is the only one gets the same rows. */
TEST(rows_of_real_servers_are_sent_ahead_too)
{
    const char *early = test_path("early"), *late = test_path("late");

    gpu_kit_open();
    CHECK(hash_of_job(work_early, early) == hash_of_job(work_late, late));
    CHECK_TEXT(order_in(early), "(rr)p(r)p(r)p(r)p(r)p(r)p()p");
    CHECK_TEXT(order_in(late), "(r)p(r)p(r)p(r)p(r)p(r)p(r)p");
    gpu_kit_close();
}
