/* ps_feed_test.c - the delta feed of jobs of real processes: a subscriber that
 * is killed again and again has in the end what the servers have, and was told
 * each change once.
 */
#define SUITE ps_feed
#include "ps_kit.h"
#include "test.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fleet/feed.h>

#include "base/clock.h"
#include "base/memory.h"
#include "net/keys.h"

enum { IDS = 3000, AT_ONCE = 32, LEAST_STEPS = 60, MOST_STEPS = 20000 };

typedef struct feed_case {
    bool async;
    fleet_row_storage storage;
    fleet_table_options life;
    bool shrinks;
    int64_t dim;
    int64_t changes;  /* of rows, at least */
    int kills, apart; /* bytes heard between two of them */
    bool keys;
    int server_kills; /* with a log */
} feed_case;

/* All processes of a test know these: made before the first of them. */
static const char *save_path, *enough_path, *feed_path, *keys_path, *log_path;

static const feed_case *case_of(const ps_node *n)
{
    return n->job->user;
}

/* --- the job -------------------------------------------------------------- */

static void open_job(ps_node *n, const fleet_options *o)
{
    const feed_case *c = case_of(n);
    const fleet_sparse_embedding_options table = {
        .table = "t", .storage = c->storage, .life = c->life};
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;
    fleet_optimizer *adam;
    fleet_var *ids, *y;

    CHECK_OK(fleet_init(&n->s.f, o));
    n->s.p = fleet_program_create(n->s.f);
    ids = fleet_data(n->s.p, "ids", FLEET_INT64, (int64_t[]){-1, 1}, 2);
    y = fleet_sparse_embedding(n->s.p, ids, c->dim, &table);
    y = fleet_fc(n->s.p, y, 1, NULL);
    n->s.m.loss = fleet_mean(n->s.p, y);
    s.a_sync = c->async;
    if (c->server_kills > 0) {
        s.log = FLEET_DURABLE_PROCESS;
        s.log_configs.folder = log_path;
    }
    adam = fleet_distributed_optimizer(n->s.f, fleet_adam(n->s.f, 0.01f, NULL),
                                       &s);
    CHECK_OK(fleet_minimize(adam, n->s.m.loss));
}

static bool may_end(void)
{
    return access(enough_path, F_OK) == 0;
}

/* Each changes a fourth of the two workers' ids at least, as few come twice. */
static int least_steps(const feed_case *c)
{
    int n = (int)(c->changes * 4 / (3 * 2 * AT_ONCE));

    return n > LEAST_STEPS ? n : LEAST_STEPS;
}

static fleet_status train_until_enough(ps_node *n, int least)
{
    uint64_t x = (uint64_t)n->index + 1;

    for (int i = 0; i < least + MOST_STEPS && (i < least || !may_end()); i++) {
        int64_t ids[AT_ONCE], dims[] = {AT_ONCE, 1};
        const fleet_feed feed = {"ids", FLEET_INT64, ids, dims, 2, NULL};

        for (int j = 0; j < AT_ONCE; j++) {
            x = x * 6364136223846793005u + 1442695040888963407u;
            ids[j] = (int64_t)(x >> 33) % IDS;
        }
        FL_TRY(fleet_executor_run(n->s.e, &feed, 1, NULL, 0));
    }
    return FLEET_OK;
}

static fleet_status work_and_save(ps_node *n)
{
    FL_TRY(ps_begin(n));
    FL_TRY(train_until_enough(n, least_steps(case_of(n))));
    if (case_of(n)->shrinks) { /* all rows, and some come back */
        FL_TRY(fleet_shrink(n->s.f, NULL));
        FL_TRY(train_until_enough(n, 5));
    }
    FL_TRY(fleet_barrier_worker(n->s.f));
    if (n->index == 0)
        FL_TRY(fleet_save_persistables(n->s.f, save_path));
    FL_TRY(fleet_barrier_worker(n->s.f));
    return fleet_stop_worker(n->s.f);
}

/* --- the subscriber: all that it hears goes into a file ------------------- */

/* Of a batch, its parts follow, then the offset; the file's end may be torn. */
typedef struct batch_record {
    uint32_t size, n_part;
    int32_t lane, begins, offset_size;
} batch_record;

typedef struct part_record {
    int32_t kind, table;
    int64_t n, first;
} part_record;

static void put(char **to, const void *from, size_t size)
{
    if (from)
        memcpy(*to, from, size);
    *to += size;
}

static size_t part_bytes(const fleet_feed_part *p)
{
    size_t n = (size_t)p->n;

    if (p->kind == FLEET_FEED_WEIGHTS)
        return sizeof(part_record) + n * sizeof(float);
    if (p->kind == FLEET_FEED_GONE)
        return sizeof(part_record) + n * sizeof(uint64_t);
    return sizeof(part_record) + 2 * n * sizeof(uint64_t) +
           n * (size_t)p->dim * sizeof(float);
}

static void put_part(char **to, const fleet_feed_part *p)
{
    const part_record r = {(int32_t)p->kind, strcmp(p->name, "t") == 0, p->n,
                           p->first};
    size_t n = (size_t)p->n;

    put(to, &r, sizeof r);
    if (p->key)
        put(to, p->key, n * sizeof *p->key);
    if (p->version)
        put(to, p->version, n * sizeof *p->version);
    if (p->value)
        put(to, p->value, n * (size_t)(p->dim ? p->dim : 1) * sizeof *p->value);
}

static void write_batch(int fd, fleet_delta_feed *feed,
                        const fleet_feed_batch *b)
{
    size_t offset = fleet_feed_offset(feed, NULL, 0);
    batch_record r = {sizeof r, (uint32_t)b->n_part, b->lane, b->begins,
                      (int32_t)offset};
    char *bytes, *at;

    for (int i = 0; i < b->n_part; i++)
        r.size += (uint32_t)part_bytes(&b->part[i]);
    r.size += (uint32_t)offset;
    at = bytes = malloc(r.size);
    put(&at, &r, sizeof r);
    for (int i = 0; i < b->n_part; i++)
        put_part(&at, &b->part[i]);
    CHECK(fleet_feed_offset(feed, at, offset) == offset);
    CHECK(write(fd, bytes, r.size) == (ssize_t)r.size);
    free(bytes);
}

/* The whole records of the file, to be free()d. */
static char *read_records(size_t *size)
{
    FILE *f = fopen(feed_path, "r");
    struct stat st;
    char *bytes;
    size_t n = 0;

    *size = 0;
    if (!f)
        return NULL;
    CHECK(fstat(fileno(f), &st) == 0);
    bytes = malloc((size_t)st.st_size + 1);
    n = fread(bytes, 1, (size_t)st.st_size, f);
    fclose(f);
    while (*size + sizeof(batch_record) <= n) {
        batch_record r;

        memcpy(&r, bytes + *size, sizeof r);
        if (*size + r.size > n)
            break;
        *size += r.size;
    }
    return bytes;
}

static const char *last_offset(const char *bytes, size_t size)
{
    const char *offset = NULL;
    batch_record r;

    for (size_t at = 0; at < size; at += r.size) {
        memcpy(&r, bytes + at, sizeof r);
        offset = bytes + at + r.size - r.offset_size;
    }
    return offset;
}

/* Until it is over. */
static void be_a_subscriber(const char *endpoints)
{
    size_t size;
    char *before = read_records(&size);
    fleet_feed_options o = {.server_endpoints = endpoints,
                            .offset = last_offset(before, size),
                            .keys = keys_path,
                            .interval_ms = 20};
    int fd = open(feed_path, O_WRONLY | O_CREAT, 0600);
    fleet_delta_feed *feed = fleet_feed_open(&o);
    const fleet_feed_batch *b;
    fleet_status status;

    CHECK(feed != NULL && fd >= 0);
    CHECK(ftruncate(fd, (off_t)size) == 0 && lseek(fd, 0, SEEK_END) >= 0);
    while ((status = fleet_feed_next(feed, 1000, &b)) != FLEET_EEND) {
        CHECK_OK(status);
        if (b)
            write_batch(fd, feed, b);
    }
    fleet_feed_close(feed);
    close(fd);
    free(before);
}

static pid_t start_subscriber(const ps_job *j)
{
    pid_t pid = test_fork();

    if (pid == 0) {
        test_ends_process = true;
        be_a_subscriber(j->endpoints);
        test_check_leaks();
        _exit(0);
    }
    return pid;
}

static int64_t bytes_heard(void)
{
    struct stat st;

    return stat(feed_path, &st) == 0 ? (int64_t)st.st_size : 0;
}

static void await_bytes(int64_t bytes)
{
    for (int ms = 0; bytes_heard() <= bytes; ms++) {
        CHECK(ms < 30000 * TEST_SLOWNESS);
        usleep(1000);
    }
}

/* Killed when it has heard something new, and started again. */
static pid_t kill_often(const ps_job *j, pid_t pid, const feed_case *c)
{
    for (int i = 0; i < c->kills; i++) {
        await_bytes(bytes_heard() + c->apart + 1000 * (i % 3));
        CHECK(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
        pid = start_subscriber(j);
    }
    return pid;
}

/* The subscriber hears of the same server's next process. */
static void kill_server(ps_job *j, int times)
{
    for (int i = 0; i < times; i++) {
        ps_kill(ps_server(j, 0), SIGKILL);
        CHECK_INT(ps_wait(ps_server(j, 0)), 128 + SIGKILL);
        ps_start(ps_server(j, 0));
        await_bytes(bytes_heard() + 100000);
    }
}

/* --- what it has heard ---------------------------------------------------- */

typedef struct heard {
    int64_t dim;
    bool has[IDS];
    int lane[IDS];
    float *row;       /* IDS x dim */
    uint64_t *newest; /* version of each row */
    float weight[64];
    int begins, rows, gone, again;
} heard;

static void hear_rows(heard *h, int lane, const part_record *r, const char *at)
{
    for (int64_t i = 0; i < r->n; i++) {
        uint64_t key, version = 0;

        memcpy(&key, at + (size_t)i * 8, 8);
        CHECK(key < IDS);
        if (r->kind == FLEET_FEED_GONE) {
            h->has[key] = false;
            h->gone++;
            continue;
        }
        memcpy(&version, at + (size_t)(r->n + i) * 8, 8);
        h->again += h->has[key] && version <= h->newest[key];
        h->newest[key] = version;
        h->has[key] = true;
        h->lane[key] = lane;
        h->rows++;
        memcpy(h->row + key * (uint64_t)h->dim,
               at + (size_t)r->n * 16 + (size_t)(i * h->dim) * sizeof(float),
               (size_t)h->dim * sizeof(float));
    }
}

static void hear_part(heard *h, int lane, const char **at)
{
    part_record r;

    memcpy(&r, *at, sizeof r);
    *at += sizeof r;
    if (r.kind == FLEET_FEED_WEIGHTS) {
        CHECK(r.n <= 64 && r.first == 0);
        if (r.n == h->dim)
            memcpy(h->weight, *at, (size_t)r.n * sizeof(float));
        *at += (size_t)r.n * sizeof(float);
        return;
    }
    CHECK(r.table == 1);
    hear_rows(h, lane, &r, *at);
    *at +=
        (size_t)r.n *
        (r.kind == FLEET_FEED_GONE ? 8 : 16 + (size_t)h->dim * sizeof(float));
}

static void hear_all(heard *h)
{
    size_t size;
    char *bytes = read_records(&size);

    h->row = calloc(IDS * (size_t)h->dim, sizeof *h->row);
    h->newest = calloc(IDS, sizeof *h->newest);
    for (size_t at = 0; at < size;) {
        const char *part = bytes + at + sizeof(batch_record);
        batch_record r;

        memcpy(&r, bytes + at, sizeof r);
        for (int i = 0; r.begins && i < IDS; i++)
            h->has[i] = h->has[i] && h->lane[i] != r.lane;
        h->begins += r.begins;
        for (uint32_t i = 0; i < r.n_part; i++)
            hear_part(h, r.lane, &part);
        CHECK(part == bytes + at + r.size - r.offset_size);
        at += r.size;
    }
    free(bytes);
}

static uint64_t newest_of(const heard *h)
{
    uint64_t newest = 0;

    for (int i = 0; i < IDS; i++)
        newest = h->newest[i] > newest ? h->newest[i] : newest;
    return newest;
}

/* Against what was saved at the job's end. */
static void compare_with_save(ps_job *j, const heard *h)
{
    fleet_options o = {.seed = 5, .num_threads = 1, .role = &(fleet_role){0}};
    ps_node one = {.job = j};
    float *row = calloc(IDS * (size_t)h->dim, sizeof *row), w[64];
    uint64_t key[IDS];
    int found[IDS];

    open_job(&one, &o);
    one.s.e = fleet_executor_create(one.s.p, NULL);
    CHECK_OK(fleet_load_model(one.s.f, save_path));
    for (int i = 0; i < IDS; i++)
        key[i] = (uint64_t)i;
    CHECK_OK(fleet_table_get(one.s.f, "t", key, IDS, h->dim, row, NULL, found));
    for (int i = 0; i < IDS; i++) {
        CHECK_INT(h->has[i], found[i]);
        CHECK(!found[i] || memcmp(row + i * h->dim, h->row + i * h->dim,
                                  (size_t)h->dim * sizeof *row) == 0);
    }
    CHECK_OK(fleet_parameter_get(one.s.f, "fc_0.w", w, h->dim));
    CHECK(memcmp(w, h->weight, (size_t)h->dim * sizeof *w) == 0);
    fleet_executor_destroy(one.s.e);
    fleet_destroy(one.s.f);
    free(row);
}

static void follow_job(int servers, int lanes, const feed_case *c)
{
    ps_job j = {.servers = servers,
                .workers = 2,
                .lanes = lanes,
                .open = open_job,
                .work = work_and_save,
                .user = (void *)(uintptr_t)c};
    heard h = {.dim = c->dim};
    pid_t pid;
    int status;

    save_path = test_path("save");
    enough_path = test_path("enough");
    feed_path = test_path("feed");
    log_path = test_path("log");
    keys_path = NULL;
    if (c->keys) {
        j.keys = keys_path = test_path("keys");
        CHECK_OK(fl_keys_make_all(keys_path, (const int[FL_N_ROLE]){1, 2, 1}));
        setenv("FLEET_TRANSPORT", "tcp", 1);
    }
    ps_start_all(&j);
    pid = kill_often(&j, start_subscriber(&j), c);
    kill_server(&j, c->server_kills);
    if (c->shrinks)
        await_bytes(bytes_heard()); /* it follows */
    test_file("enough", "");
    ps_check_all_end(&j);
    CHECK(test_ends_within(pid, 60000 * TEST_SLOWNESS));
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    hear_all(&h);
    CHECK(h.begins >= servers * lanes + c->server_kills);
    CHECK(h.begins <= lanes * (servers + c->server_kills));
    CHECK_INT(h.again, 0); /* each change once */
    CHECK((h.gone > 0) == (c->life.most_rows > 0 || c->shrinks));
    CHECK(c->changes <= (int64_t)newest_of(&h) * 3 / 2 * AT_ONCE);
    compare_with_save(&j, &h);
    free(h.row);
    free(h.newest);
}

/* --- claims --------------------------------------------------------------- */

/* So many kills as often as FLEET_KILLS says, and then of a million changes. */
TEST_LIMIT(a_subscriber_that_is_killed_has_what_the_server_has, 600)
{
    const char *often = getenv("FLEET_KILLS");
    feed_case c = {.dim = 8, .kills = 5};

    if (often) {
        c.kills *= atoi(often);
        c.changes = 1000000;
        c.apart = 300000;
    }
    follow_job(1, 1, &c);
}

TEST(lanes_of_two_async_servers_tell_rows_that_go)
{
    follow_job(2, 2,
               &(feed_case){.async = true,
                            .dim = 4,
                            .kills = 2,
                            .life.most_rows = 1024,
                            .storage = FLEET_ROW_BFLOAT16});
}

TEST(rows_of_an_accessor_are_told_as_floats_and_when_a_shrink_lets_them_go)
{
    follow_job(1, 2,
               &(feed_case){.dim = 4,
                            .kills = 1,
                            .shrinks = true,
                            .life.accessor = {.kind = FLEET_CTR_ACCESSOR,
                                              .delete_threshold = 1e6f},
                            .storage = FLEET_ROW_FLOAT16});
}

TEST(rows_of_int8_are_told_as_floats)
{
    follow_job(1, 1,
               &(feed_case){.dim = 4, .kills = 1, .storage = FLEET_ROW_INT8});
}

TEST(a_server_that_comes_back_from_its_log_is_followed)
{
    follow_job(1, 2, &(feed_case){.dim = 4, .server_kills = 2});
}

TEST(a_subscriber_has_a_key_of_its_own)
{
    follow_job(1, 1, &(feed_case){.dim = 2, .keys = true, .kills = 1});
    CHECK(
        fleet_feed_open(&(fleet_feed_options){.server_endpoints = "127.0.0.1:1",
                                              .subscriber = 1,
                                              .keys = keys_path}) == NULL);
    CHECK_CONTAINS(fleet_last_error(), "subscriber-1.secret");
}

TEST(without_servers_there_is_no_feed)
{
    CHECK(fleet_feed_open(NULL) == NULL);
    CHECK_INT(fleet_last_status(), FLEET_ENOENT);
    CHECK_CONTAINS(fleet_last_error(), "there are no servers to follow");
    CHECK(fleet_feed_open(&(fleet_feed_options){
              .server_endpoints = "127.0.0.1:1", .interval_ms = 5000}) == NULL);
    CHECK_CONTAINS(fleet_last_error(), "interval_ms: expected 0 to 1000");
    CHECK(fleet_feed_open(&(fleet_feed_options){
              .server_endpoints = "127.0.0.1:1", .offset = "here"}) == NULL);
    CHECK_INT(fleet_last_status(), FLEET_EFORMAT);
}

TEST(a_server_that_is_silent_is_named_and_the_caller_does_not_spin)
{
    const fleet_feed_options o = {.server_endpoints = "127.0.0.1:1",
                                  .peer_deadline_ms = 100};
    fleet_delta_feed *feed = fleet_feed_open(&o);
    const fleet_feed_batch *b;
    int64_t began;

    CHECK(feed != NULL);
    CHECK_FAILS(fleet_feed_next(feed, 5000, &b), FLEET_ETIMEDOUT,
                "server 0 at 127.0.0.1:1 was not heard of");
    CHECK(b == NULL);
    began = fl_now_ms();
    CHECK_FAILS(fleet_feed_next(feed, 300, &b), FLEET_ETIMEDOUT, "server 0");
    CHECK(fl_now_ms() - began >= 299);
    fleet_feed_close(feed);
}
