/* ps_feed.c - K4: how late a subscriber has what a job has trained. One server
 * with two lanes, one worker that trains at full speed (sync, Adagrad, 2,048 of
 * 200,000 rows of 16 numbers in a step), a subscriber that stores what it hears
 * with its offset. The lag of a row is the time from the end of the worker's
 * step that has changed it to when the subscriber has stored it.
 *
 *   K4-lag     ms, the 99th of 100 rows, while nothing befalls the subscriber
 *   K4-killed  the same while it is killed 20 times, and started again at once
 *
 * At the end its table must be the server's, to the bit.
 */
#include <stdatomic.h>
#include <sys/mman.h>

#include <fleet/feed.h>

#include "ps_job.h"

enum { IDS = 200000, DIM = 16, AT_ONCE = 2048, MOST_UPDATE = 1 << 20 };
enum { KILLS = 20, LEAST_CHANGES = 1000000, MOST_MS = 60000, OFFSET = 4000 };

/* Between the processes, and what the subscriber has stored: a batch that is
 * applied again after a kill is as it was. */
typedef struct shared {
    char endpoint[64], save[64];
    atomic_int stop, complete, equal;
    atomic_int period; /* 0: nothing is counted; 1, 2: by which it is */
    atomic_long updates;
    double made[MOST_UPDATE]; /* when the step of that update had ended */
    long lag[3][MOST_MS];     /* rows, by ms */

    char offset[2][OFFSET];
    atomic_int last; /* which of them counts; -1: none yet */
    int lane_complete[16];
    char has[IDS];
    int lane[IDS];
    float row[IDS][DIM], weight[DIM];
} shared;

static shared *all;

/* --- the job -------------------------------------------------------------- */

typedef struct node {
    fleet *f;
    fleet_program *p;
    fleet_var *loss;
} node;

static void open_node(node *n, const fleet_role *role)
{
    const fleet_options o = {.role = role, .num_threads = 1, .seed = 5};
    const fleet_sparse_embedding_options table = {.table = "t"};
    fleet_distributed_strategy sync = FLEET_DISTRIBUTED_STRATEGY_INIT;
    fleet_optimizer *adagrad;
    fleet_var *ids, *y;

    check(fleet_init(&n->f, &o));
    n->p = fleet_program_create(n->f);
    ids = fleet_data(n->p, "ids", FLEET_INT64, (int64_t[]){-1, 1}, 2);
    y = fleet_sparse_embedding(n->p, ids, DIM, &table);
    n->loss = fleet_mean(n->p, fleet_fc(n->p, y, 1, NULL));
    adagrad = fleet_adagrad(n->f, 0.01f, NULL);
    sync.a_sync = 0;
    if (role->server_endpoints)
        adagrad = fleet_distributed_optimizer(n->f, adagrad, &sync);
    check(fleet_minimize(adagrad, n->loss));
}

static void serve(int say, void *arg)
{
    const fleet_role role = {.kind = FLEET_SERVER,
                             .server_endpoints = all->endpoint,
                             .worker_num = 1};
    node n;

    (void)arg;
    setenv("FLEET_SERVER_LANES", "2", 1);
    open_node(&n, &role);
    check(fleet_init_server(n.f, NULL));
    helper_say(say, all->endpoint);
    check(fleet_run_server(n.f));
}

/* As many rows as ids: none comes twice in a step. */
static void draw(int64_t ids[AT_ONCE], uint64_t *state)
{
    uint64_t first = next_random(state), step = next_random(state) % 97;

    for (uint64_t i = 0; i < AT_ONCE; i++)
        ids[i] = (int64_t)((first % IDS + i * (step + 1)) % IDS);
}

static void work(void)
{
    const fleet_role role = {.server_endpoints = all->endpoint,
                             .worker_num = 1};
    static int64_t ids[AT_ONCE];
    uint64_t state = 1;
    fleet_executor *e;
    node n;

    open_node(&n, &role);
    e = fleet_executor_create(n.p, NULL);
    must(e != NULL, fleet_last_error());
    check(fleet_init_worker(n.f));
    for (long i = 1; i < MOST_UPDATE && !atomic_load(&all->stop); i++) {
        const int64_t dims[] = {AT_ONCE, 1};
        const fleet_feed feed = {"ids", FLEET_INT64, ids, dims, 2, NULL};

        draw(ids, &state);
        check(fleet_executor_run(e, &feed, 1, NULL, 0));
        all->made[i] = now();
        atomic_store(&all->updates, i);
    }
    check(fleet_save_persistables(n.f, all->save));
    check(fleet_stop_worker(n.f));
    exit(0);
}

/* --- the subscriber ------------------------------------------------------- */

static void note_lag(uint64_t version)
{
    int period = atomic_load(&all->period);
    double made, lag;

    if (period == 0 || version == 0 || version >= MOST_UPDATE)
        return;
    made = (long)version <= atomic_load(&all->updates) ? all->made[version] : 0;
    lag = made > 0 ? (now() - made) * 1e3 : 0; /* sooner than the worker */
    all->lag[period][lag < MOST_MS - 1 ? (int)lag : MOST_MS - 1]++;
}

static void take_part(const fleet_feed_part *p, int lane)
{
    if (p->kind == FLEET_FEED_WEIGHTS && p->n == DIM)
        memcpy(all->weight, p->value, sizeof all->weight);
    for (int64_t i = 0; p->kind == FLEET_FEED_ROWS && i < p->n; i++) {
        must(p->key[i] < IDS, "a key that nobody has trained");
        all->has[p->key[i]] = 1;
        all->lane[p->key[i]] = lane;
        memcpy(all->row[p->key[i]], p->value + i * DIM, sizeof *all->row);
    }
}

static void store_batch(fleet_delta_feed *feed, const fleet_feed_batch *b)
{
    int other = atomic_load(&all->last) == 0;

    for (int i = 0; b->begins && i < IDS; i++)
        all->has[i] = all->has[i] && all->lane[i] != b->lane;
    for (int i = 0; i < b->n_part; i++)
        take_part(&b->part[i], b->lane);
    must(fleet_feed_offset(feed, all->offset[other], OFFSET) <= OFFSET,
         "a long offset");
    atomic_store(&all->last, other);
    for (int i = 0; i < b->n_part && all->lane_complete[b->lane]; i++)
        for (int64_t j = 0; b->part[i].version && j < b->part[i].n; j++)
            note_lag(b->part[i].version[j]);
    if (!b->complete || all->lane_complete[b->lane])
        return;
    all->lane_complete[b->lane] = 1;
    atomic_fetch_add(&all->complete, 1);
}

/* With what was saved at the end. */
static int is_equal(void)
{
    const fleet_role alone = {.worker_num = 0};
    static float row[IDS][DIM], weight[DIM];
    static uint64_t key[IDS];
    static int found[IDS];
    int equal = 1;
    node n;

    open_node(&n, &alone);
    must(fleet_executor_create(n.p, NULL) != NULL, fleet_last_error());
    check(fleet_load_model(n.f, all->save));
    for (int i = 0; i < IDS; i++)
        key[i] = (uint64_t)i;
    check(fleet_table_get(n.f, "t", key, IDS, DIM, row[0], NULL, found));
    check(fleet_parameter_get(n.f, "fc_0.w", weight, DIM));
    for (int i = 0; i < IDS; i++)
        equal = equal && found[i] == all->has[i] &&
                (!found[i] || memcmp(row[i], all->row[i], sizeof row[i]) == 0);
    return equal && memcmp(weight, all->weight, sizeof weight) == 0;
}

static void follow(void)
{
    int last = atomic_load(&all->last);
    const fleet_feed_options o = {.server_endpoints = all->endpoint,
                                  .offset =
                                      last < 0 ? NULL : all->offset[last]};
    fleet_delta_feed *feed = fleet_feed_open(&o);
    const fleet_feed_batch *b;
    fleet_status status;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    must(feed != NULL, fleet_last_error());
    while ((status = fleet_feed_next(feed, 1000, &b)) == FLEET_OK)
        if (b)
            store_batch(feed, b);
    must(status == FLEET_EEND, fleet_last_error());
    fleet_feed_close(feed);
    atomic_store(&all->equal, is_equal());
    exit(0);
}

/* --- all of it ------------------------------------------------------------ */

static pid_t start(void (*run)(void))
{
    pid_t pid = fork();

    must(pid >= 0, "cannot fork");
    if (pid == 0)
        run();
    return pid;
}

static void end_well(pid_t pid, const char *who)
{
    int status;

    must(waitpid(pid, &status, 0) == pid && status == 0, who);
}

/* The lag in ms that that part of a period's rows had at most. */
static double lag_of(int period, double part)
{
    long n = 0, sum = 0;
    int ms = 0;

    for (int i = 0; i < MOST_MS; i++)
        n += all->lag[period][i];
    must(n > 0, "the subscriber has heard nothing");
    for (; ms < MOST_MS - 1; ms++) {
        sum += all->lag[period][ms];
        if ((double)sum >= (double)n * part)
            break;
    }
    return ms + 1;
}

static void print_row(const char *id, int period, double floor_, double goal)
{
    printf("{\"id\":\"%s\",\"ratio\":%.0f,\"floor\":%.0f,\"goal\":%.0f,"
           "\"ours\":%.0f,\"peer\":%.0f,\"unit\":\"ms, at most\","
           "\"peer_name\":\"the median\",\"changes\":%ld,\"rounds\":%d}\n",
           id, lag_of(period, 0.99), floor_, goal, lag_of(period, 0.99),
           lag_of(period, 0.5), atomic_load(&all->updates) * AT_ONCE,
           period == 2 ? KILLS : 1);
}

static pid_t kill_often(pid_t subscriber)
{
    for (int i = 0; i < KILLS; i++) {
        usleep(250000);
        must(kill(subscriber, SIGKILL) == 0 &&
                 waitpid(subscriber, NULL, 0) == subscriber,
             "no subscriber");
        subscriber = start(follow);
    }
    return subscriber;
}

int main(void)
{
    pid_t worker, subscriber;
    helper server;
    char command[100];

    all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE,
               MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(all != MAP_FAILED, "no memory");
    atomic_store(&all->last, -1);
    free_endpoint(all->endpoint);
    snprintf(all->save, sizeof all->save, "/tmp/fleet-k4.%d", (int)getpid());
    server = helper_start(serve, NULL);
    worker = start(work);
    subscriber = start(follow);
    while (atomic_load(&all->complete) < 2)
        usleep(1000);
    atomic_store(&all->period, 1);
    usleep(5000000);
    atomic_store(&all->period, 2);
    subscriber = kill_often(subscriber);
    atomic_store(&all->period, 0);
    while (atomic_load(&all->updates) * AT_ONCE < LEAST_CHANGES)
        usleep(1000);
    atomic_store(&all->stop, 1);
    end_well(worker, "the worker has failed");
    end_well(subscriber, "the subscriber has failed");
    helper_end(&server);
    print_row("K4-lag", 1, 1000, 150);
    print_row("K4-killed", 2, 2000, 500);
    snprintf(command, sizeof command, "rm -rf %s", all->save);
    must(system(command) == 0, command);
    must(atomic_load(&all->equal),
         "the subscriber's table is not the server's");
    return 0;
}
