/* ps_pairs.c - P3, P4: 10,000,000 pairs of a key (u64) and a float are pushed,
 * and pulled, through our client, messages and sockets and an empty handler, in
 * pieces as a worker cuts them; over ps-lite's own benchmark of the same,
 * test_kv_app_benchmark, run in turn: FLEET_PSLITE names that program. Unset:
 * over what it has taken on another machine. Both begin with the user's arrays
 * and end when all is answered, and in the user's array. */
#include <sys/prctl.h>

#include "ps_empty.h"

enum { PAIRS = 10000000, PIECE = 1 << 18, ROUNDS = 5 };
enum { PSLITE_PROCESSES = 3, MOST_TEXT = 4096 };

/* Milliseconds of ps-lite on 2 vCPU of a Xeon, the median of its runs. */
static const double stated_push = 155, stated_pull = 240;

/* --- ours ----------------------------------------------------------------- */

typedef struct arrays {
    uint64_t *key;
    float *value, *pulled;
} arrays;

static size_t piece_at(size_t i)
{
    return PAIRS - i < PIECE ? PAIRS - i : PIECE;
}

static void ask(worker *w, fl_request *r, const arrays *a, size_t at, bool pull)
{
    size_t n = piece_at(at);
    fl_msg_writer writer;
    void *key;

    fl_request_clear(r);
    fl_client_begin(w->client, 0, r, &writer, FL_MSG_STEP, ++w->step,
                    FL_MSG_END_OF_STEP);
    fl_msg_section(&writer, FL_SECTION_ROWS, pull ? EMPTY_PULL : EMPTY_PUSH)
        ->n_key = (uint32_t)n;
    key = fl_msg_column(&writer, FL_COLUMN_KEYS, n * sizeof *a->key);
    must(key != NULL, fleet_last_error());
    memcpy(key, a->key + at, n * sizeof *a->key);
    if (!pull)
        memcpy(fl_msg_column(&writer, FL_COLUMN_VALUES, n * sizeof(float)),
               a->value + at, n * sizeof(float));
    must(fl_client_add(w->client, r, &writer) == FLEET_OK, fleet_last_error());
    fl_client_send(w->client, r, fl_now_ms());
}

static void await(worker *w, fl_request *r, const arrays *a, size_t at,
                  bool pull)
{
    size_t bytes = pull ? piece_at(at) * sizeof(float) : 0;
    const fl_msg *msg;

    while (r->state == FL_REQUEST_SENT)
        work_socket(w);
    msg = fl_client_answer(w->client, r);
    must(msg && msg->column[0][FL_AT_VALUES].size == bytes, "a wrong answer");
    if (pull)
        memcpy(a->pulled + at, msg->column[0][FL_AT_VALUES].data, bytes);
}

/* Milliseconds. */
static double ours(worker *w, const arrays *a, bool pull)
{
    double began = now();
    size_t n = (PAIRS + PIECE - 1) / PIECE;

    for (size_t i = 0; i < n + WINDOW; i++) {
        if (i >= WINDOW)
            await(w, &w->request[i % WINDOW], a, (i - WINDOW) * PIECE, pull);
        if (i < n)
            ask(w, &w->request[i % WINDOW], a, i * PIECE, pull);
    }
    return (now() - began) * 1e3;
}

static void fill(arrays *a)
{
    a->key = malloc(PAIRS * sizeof *a->key);
    a->value = malloc(PAIRS * sizeof *a->value);
    a->pulled = malloc(PAIRS * sizeof *a->pulled);
    must(a->key && a->value && a->pulled, "out of memory");
    for (size_t i = 0; i < PAIRS; i++) {
        a->key[i] = UINT64_MAX / PAIRS * i;
        a->value[i] = (float)(i % 1000);
        a->pulled[i] = 0;
    }
}

/* --- ps-lite -------------------------------------------------------------- */

static void set_environment(int port)
{
    char text[20];

    snprintf(text, sizeof text, "%d", port);
    setenv("DMLC_PS_ROOT_PORT", text, 1);
    setenv("DMLC_PS_ROOT_URI", "127.0.0.1", 1);
    setenv("DMLC_INTERFACE", "lo", 1);
    setenv("DMLC_NUM_SERVER", "1", 1);
    setenv("DMLC_NUM_WORKER", "1", 1);
}

static pid_t start_peer(const char *program, const char *role, int out)
{
    pid_t pid = fork();

    must(pid >= 0, "cannot fork");
    if (pid > 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setenv("DMLC_ROLE", role, 1);
    dup2(out, STDERR_FILENO);
    dup2(out, STDOUT_FILENO);
    execl(program, program, (char *)NULL);
    _exit(127);
}

static double found_in(const char *text, const char *word)
{
    const char *at = strstr(text, word);

    return at ? atof(at + strlen(word)) : -1;
}

/* Milliseconds of one run. */
static void peer(const char *program, double *push, double *pull)
{
    static const char *const role[PSLITE_PROCESSES] = {"scheduler", "server",
                                                       "worker"};
    char text[MOST_TEXT + 1], endpoint[64];
    pid_t pid[PSLITE_PROCESSES];
    size_t size = 0;
    ssize_t n = 1;
    int fd[2];

    free_endpoint(endpoint);
    set_environment(atoi(strrchr(endpoint, ':') + 1));
    must(pipe(fd) == 0, "no pipe");
    for (int i = 0; i < PSLITE_PROCESSES; i++)
        pid[i] = start_peer(program, role[i], fd[1]);
    close(fd[1]);
    for (; n > 0 && size<MOST_TEXT; size += n> 0 ? (size_t)n : 0)
        n = read(fd[0], text + size, MOST_TEXT - size);
    text[size] = 0;
    close(fd[0]);
    for (int i = 0; i < PSLITE_PROCESSES; i++)
        waitpid(pid[i], NULL, 0);
    *push = found_in(text, "Push average time cost: ");
    *pull = found_in(text, "Pull average time cost: ");
    must(*push > 0 && *pull > 0, "ps-lite's benchmark says no times");
}

/* --- rows ----------------------------------------------------------------- */

typedef struct times {
    double ours[ROUNDS], peer[ROUNDS], ratio[ROUNDS];
} times;

static double middle(double *v)
{
    qsort(v, ROUNDS, sizeof *v, ascending);
    return v[ROUNDS / 2];
}

static void print_row(const char *id, times *t, double floor_, double goal,
                      bool measured)
{
    printf("{\"id\": \"%s\", \"ratio\": %.3f, \"floor\": %g, \"goal\": %g, "
           "\"ours\": %.1f, \"peer\": %.1f, \"unit\": \"ms, at most\", "
           "\"peer_name\": \"ps-lite%s\", \"rounds\": %d}\n",
           id, middle(t->ratio), floor_, goal, middle(t->ours), middle(t->peer),
           measured ? "" : " as it was on another machine", ROUNDS);
}

static void keep(times *t, int round, double ours_ms, double peer_ms)
{
    if (round < 0)
        return; /* warm */
    t->ours[round] = ours_ms;
    t->peer[round] = peer_ms;
    t->ratio[round] = ours_ms / peer_ms;
}

int main(int argc, char **argv)
{
    const char *program = getenv("FLEET_PSLITE");
    double peer_push = stated_push, peer_pull = stated_pull;
    helper server = helper_start(serve, NULL);
    static times push, pull;
    arrays a;
    worker w;

    fill(&a);
    connect_to(&w, server.address, 0);
    for (int i = -1; i < ROUNDS; i++) {
        double push_ms = ours(&w, &a, false), pull_ms = ours(&w, &a, true);

        if (program && *program)
            peer(program, &peer_push, &peer_pull);
        keep(&push, i, push_ms, peer_push);
        keep(&pull, i, pull_ms, peer_pull);
    }
    if (is_wanted(argc, argv, "P3"))
        print_row("P3", &push, 0.5, 0.25, program && *program);
    if (is_wanted(argc, argv, "P4"))
        print_row("P4", &pull, 0.5, 0.25, program && *program);
    close_worker(&w);
    helper_end(&server);
    return 0;
}
