/* ps_keys_test.c - jobs with keys: a stranger, a process with another job's key
 * and a worker that speaks for another one are refused, whatever they send, and
 * the job has the bits of one that was left alone. */
#define _GNU_SOURCE
#define SUITE ps_keys
#include "net_kit.h"
#include "ps_kit.h"
#include "test.h"
#include "wire_kit.h"

#include "base/clock.h"
#include "fleet/job/handle.h"
#include "ps/host/server.h"
#include "runtime/store/store.h"

#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* --- jobs ----------------------------------------------------------------- */

static const char *make_keys(const char *name)
{
    const char *folder = test_path(name);

    CHECK_OK(fl_keys_make(folder, 2, 3));
    return folder;
}

/* Waits before its first step, and says at its end what it has come to. */
static fleet_status hold_and_tell(ps_node *n)
{
    fleet_status status = ps_hold(n);

    if (status == FLEET_OK && n->index == 0)
        fprintf(stderr, "hash %016llx\n", (unsigned long long)n->hash);
    return status;
}

static ps_job held_job(const char *keys)
{
    setenv("FLEET_TRANSPORT", "tcp", 0);
    return (ps_job){.workers = 2,
                    .work = hold_and_tell,
                    .keys = keys,
                    .connect_ms = 5 * PS_SECOND,
                    .peer_ms = 5 * PS_SECOND,
                    .file = {scene_file("a.txt", 200, 1)}};
}

static const char *hash_of(ps_job *j)
{
    const char *said = ps_said(ps_worker(j, 0));
    char hash[22];

    CHECK_CONTAINS(said, "hash ");
    snprintf(hash, sizeof hash, "%s", strstr(said, "hash "));
    return test_keep(hash);
}

static const char *let_end(ps_job *j)
{
    ps_let_go(j);
    ps_check_all_end(j);
    return hash_of(j);
}

static const char *undisturbed(const char *keys)
{
    ps_job j = held_job(keys);

    ps_start_all(&j);
    ps_hear_held(&j);
    return let_end(&j);
}

/* By tcp, and by ipc. */
TEST(keys_change_no_bits)
{
    const char *keys = make_keys("keys");

    CHECK_TEXT(undisturbed(keys), undisturbed(NULL));
    setenv("FLEET_TRANSPORT", "", 1);
    CHECK_TEXT(undisturbed(keys), undisturbed(NULL));
}

/* --- forgeries ------------------------------------------------------------ */

/* What a forger knows of the job. */
typedef struct forger {
    fl_keys *keys;
    fl_socket *socket;
    uint64_t job;
    uint32_t peer;
} forger;

static void add_text(fl_msg_writer *w, fl_msg_kind kind, uint16_t flags)
{
    if (kind == FL_MSG_HELLO)
        fl_msg_text(w, FL_SECTION_HELLO, "{\"job\": \"default\"}");
    else if (kind == FL_MSG_ABORT)
        fl_msg_text(w, FL_SECTION_TEXT, "so says a stranger");
    else if (flags & FL_MSG_COMMAND)
        fl_msg_text(w, FL_SECTION_SAVE, "{}");
}

/* A message of worker `stream`, in the words of a process that knows all. */
static fl_packet *forge(const forger *f, fl_msg_kind kind, uint32_t stream,
                        uint16_t flags)
{
    fl_msg_head head = {.version = FL_MSG_VERSION,
                        .kind = (uint8_t)kind,
                        .flags = flags,
                        .job = f->job,
                        .peer = f->peer,
                        .stream = stream,
                        .incarnation = kind == FL_MSG_HEARTBEAT ? 99 : 1,
                        .step = kind == FL_MSG_ABORT ? FLEET_EPEER : 1,
                        .request = 1};
    fl_msg_writer w;
    fl_packet *p;

    fl_msg_begin(&w, net_pool, &head);
    add_text(&w, kind, flags);
    CHECK_OK(fl_msg_end(&w, true, &p));
    return p;
}

static const struct {
    fl_msg_kind kind;
    uint16_t flags;
} forgery[] = {{FL_MSG_HELLO, 0},
               {FL_MSG_STEP, FL_MSG_END_OF_STEP},
               {FL_MSG_STEP, FL_MSG_END_OF_STEP | FL_MSG_COMMAND},
               {FL_MSG_STEP, FL_MSG_END_OF_STEP | FL_MSG_LEAVE},
               {FL_MSG_PULL, 0},
               {FL_MSG_HEARTBEAT, 0},
               {FL_MSG_ABORT, 0}};
enum { N_FORGERY = sizeof forgery / sizeof *forgery };

/* folder NULL: without keys. */
static void open_forger(forger *f, const ps_job *j, const char *folder)
{
    char address[64];

    *f = (forger){.job = fl_msg_job("default", 0)};
    if (!net_pool)
        net_open_pool();
    if (folder)
        CHECK_OK(fl_keys_read(&f->keys, folder, false, 1));
    snprintf(address, sizeof address, "tcp://127.0.0.1:%d", j->port[0]);
    CHECK_OK(fl_socket_connect_to(&f->socket, address, f->keys, 0));
}

static void close_forger(forger *f)
{
    fl_socket_close(f->socket, 500);
    fl_keys_destroy(f->keys);
}

static void send_packet(forger *f, fl_packet *p)
{
    CHECK_OK(fl_socket_send(f->socket, NULL, p));
    fl_packet_drop(p);
}

/* The server tells a worker of another run which run it is in. */
static void learn_run(forger *f)
{
    fl_packet *p;
    fl_msg msg;

    send_packet(f, forge(f, FL_MSG_HEARTBEAT, 1, 0));
    p = net_receive(f->socket, NULL);
    CHECK_OK(fl_msg_decode(p, &msg));
    CHECK_INT(msg.head.status, FL_ANSWER_FENCED);
    f->job = msg.head.job;
    f->peer = msg.head.peer;
    fl_packet_drop(p);
}

static void check_refused(forger *f, const char *words)
{
    fl_packet *p = net_receive(f->socket, NULL);
    fl_msg msg;
    char *text;

    CHECK_OK(fl_msg_decode(p, &msg));
    CHECK_INT(msg.head.status, FL_ANSWER_REFUSED);
    text = fl_msg_get_text(&msg, FL_SECTION_TEXT);
    CHECK_CONTAINS(text, words);
    fleet_free(text);
    fl_packet_drop(p);
}

TEST(a_worker_does_not_speak_for_another_one)
{
    const char *keys = make_keys("keys"), *hash = undisturbed(keys);
    ps_job j = held_job(keys);
    forger f;

    ps_start_all(&j);
    ps_hear_held(&j);
    open_forger(&f, &j, keys);
    learn_run(&f);
    for (int i = 0; i < N_FORGERY; i++) {
        send_packet(&f, forge(&f, forgery[i].kind, 0, forgery[i].flags));
        check_refused(&f, "worker 1 has sent a message of worker 0: its key "
                          "does not speak for that one");
    }
    close_forger(&f);
    CHECK_TEXT(let_end(&j), hash);
    CHECK_CONTAINS(ps_said(ps_server(&j, 0)),
                   "server 0, lane 0: 0 connections had no key of this job, 7 "
                   "messages were of another worker than their key");
    net_end(NULL, NULL);
}

/* What the keys are for: the same message, where there are none. */
TEST(without_keys_a_forged_message_is_believed)
{
    ps_job j = held_job(NULL);
    forger f;

    ps_start_all(&j);
    ps_hear_held(&j);
    open_forger(&f, &j, NULL);
    learn_run(&f);
    send_packet(&f, forge(&f, FL_MSG_ABORT, 0, 0));
    ps_check_fails(ps_server(&j, 0), "so says a stranger");
    close_forger(&f);
    ps_let_go(&j);
    ps_check_fails(ps_worker(&j, 1), "so says a stranger");
    CHECK_INT(ps_wait(ps_worker(&j, 0)), 1); /* the server took him for it */
    net_end(NULL, NULL);
}

static void say_packet(int fd, const fl_packet *p)
{
    for (int i = 0; i < p->n_frame; i++)
        wire_say_frame(fd, p->frame[i].data, p->frame[i].size,
                       i + 1 < p->n_frame);
}

/* He speaks ZeroMQ's protocol by hand: all that he wants to say he says before
 * he hears that nobody listens. */
static void speak_by_hand(const ps_job *j, const forger *f)
{
    for (int i = 0; i < N_FORGERY; i++) {
        fl_packet *p = forge(f, forgery[i].kind, 0, forgery[i].flags);
        int fd = wire_connect(j->port[0]);

        wire_greet(fd);
        say_packet(fd, p);
        wire_hear_end(fd);
        fl_packet_drop(p);
    }
}

static uint64_t connections_refused(ps_job *j)
{
    static const char words[] = "server 0, lane 0: ";
    const char *said = strstr(ps_said(ps_server(j, 0)), words);

    CHECK_CONTAINS(said, "connections had no key of this job, 0 messages were");
    return strtoull(said + sizeof words - 1, NULL, 10);
}

/* Another job's folder, in which somebody has put this server's public key. */
static fl_keys *keys_of_another_job(const char *keys)
{
    fl_keys *other, *ours;

    CHECK_OK(fl_keys_read(&ours, keys, true, 0));
    CHECK_OK(fl_keys_read(&other, make_keys("other"), false, 0));
    memcpy(other->known[FL_ROLE_SERVER][0], ours->own, sizeof(fl_key));
    fl_keys_destroy(ours);
    return other;
}

TEST(strangers_are_refused_and_counted)
{
    const char *keys = make_keys("keys"), *hash = undisturbed(keys);
    ps_job j = held_job(keys);
    forger knows, wrong = {0};
    char address[64];

    ps_start_all(&j);
    ps_hear_held(&j);
    open_forger(&knows, &j, keys);
    learn_run(&knows);
    speak_by_hand(&j, &knows);
    wrong.keys = keys_of_another_job(keys);
    snprintf(address, sizeof address, "tcp://127.0.0.1:%d", j.port[0]);
    CHECK_OK(fl_socket_connect_to(&wrong.socket, address, wrong.keys, 0));
    for (int i = 0; i < N_FORGERY; i++)
        send_packet(&wrong,
                    forge(&knows, forgery[i].kind, 0, forgery[i].flags));
    CHECK_TEXT(let_end(&j), hash);
    CHECK(connections_refused(&j) > N_FORGERY);
    close_forger(&wrong);
    close_forger(&knows);
    net_end(NULL, NULL);
}

/* --- counted while they come ---------------------------------------------- */

enum { STRANGERS = 3 };

static ps_pipe counted;

/* Looks at the server's counter while it runs. */
static void *wait_for_count(void *arg)
{
    const struct fl_server *server = arg;
    fl_wait wait = fl_wait_for(20 * PS_SECOND);
    uint64_t n = 0;

    while (n < STRANGERS && fl_wait_left(&wait) > 0) {
        CHECK(fl_server_count(server, 0, "fleet_lane_refused_connections_total",
                              &n));
        poll(NULL, 0, 5);
    }
    if (n == STRANGERS)
        ps_tell(&counted);
    return NULL;
}

/* Not by fleet_run_server(), which destroys the server: another thread that
 * looks at it has to have ended before that.
 */
static fleet_status serve_and_count(ps_node *n)
{
    pthread_t thread;
    fleet_status status = fleet_init_server(n->s.f, NULL);

    if (status != FLEET_OK)
        return status;
    CHECK(pthread_create(&thread, NULL, wait_for_count, n->s.f->server) == 0);
    status = fl_server_run(n->s.f->server);
    pthread_join(thread, NULL);
    return status;
}

/* Or what ZeroMQ tells of them would be kept until the job ends. */
TEST(strangers_are_counted_while_the_job_runs)
{
    const char *keys = make_keys("keys");
    ps_job j = held_job(keys);

    counted = ps_pipe_make();
    j.serve = serve_and_count;
    ps_start_all(&j);
    ps_hear_held(&j);
    for (int i = 0; i < STRANGERS; i++) {
        int fd = wire_connect(j.port[0]);

        wire_greet(fd);
        wire_say_frame(fd, "let me in", 9, false);
        wire_hear_end(fd);
    }
    ps_hear(&counted);
    let_end(&j);
    CHECK_INT(connections_refused(&j), STRANGERS);
}

/* --- a flood -------------------------------------------------------------- */

static long resident_kb(pid_t pid)
{
    char path[64], line[200];
    long kb = -1;
    FILE *f;

    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    f = fopen(path, "re");
    CHECK(f != NULL);
    while (kb < 0 && fgets(line, sizeof line, f))
        sscanf(line, "VmRSS: %ld", &kb);
    fclose(f);
    CHECK(kb >= 0);
    return kb;
}

/* One message without an end, until the server has hung up: how many bytes of
 * it have gone out. */
static int64_t flood(int port)
{
    enum { MORE = 4 << 20 };
    static char bytes[MORE];
    int fd = wire_connect(port);
    int64_t sent = 0;
    ssize_t n;

    wire_greet(fd);
    wire_say_frame(fd, bytes, 1000, true);
    do {
        n = send(fd, bytes, sizeof bytes, MSG_NOSIGNAL);
        sent += n > 0 ? n : 0;
    } while (n > 0 && sent < 64 * (int64_t)sizeof bytes);
    close(fd);
    return sent;
}

TEST(a_flood_without_a_key_costs_a_server_no_memory)
{
    enum { CONNECTIONS = 100, MOST_KB = 32 << 10 };
    const char *keys = make_keys("keys"), *hash = undisturbed(keys);
    ps_job j = held_job(keys);
    int64_t sent = 0;
    long before, after;

    ps_start_all(&j);
    ps_hear_held(&j);
    before = resident_kb(ps_server(&j, 0)->pid);
    for (int i = 0; i < CONNECTIONS; i++)
        sent += flood(j.port[0]);
    after = resident_kb(ps_server(&j, 0)->pid);
    CHECK_TEXT(let_end(&j), hash);
    CHECK(sent > CONNECTIONS * 10000); /* some of it has come */
    if (TEST_SLOWNESS == 1 && after - before > MOST_KB)
        test_fail(__FILE__, __LINE__, "%ld KB more after %lld bytes",
                  after - before, (long long)sent);
}

/* --- processes that do not fit -------------------------------------------- */

static void check_worker_is_not_answered(const char *servers,
                                         const char *workers, const char *words)
{
    ps_job j = held_job(servers), other;

    j.connect_ms = PS_SECOND;
    ps_prepare(&j);
    ps_start(ps_server(&j, 0));
    other = j;
    other.keys = workers;
    other.node[1].job = &other;
    ps_start(&other.node[1]);
    ps_check_fails(&other.node[1], words);
    CHECK_CONTAINS(ps_said(&other.node[1]), "FLEET_ETIMEDOUT");
    ps_check_fails(ps_server(&j, 0), "worker 0 has not come");
}

TEST(a_worker_without_a_key_of_the_job_is_not_answered)
{
    const char *keys = make_keys("keys");

    check_worker_is_not_answered(keys, NULL,
                                 "Has it keys, and this worker none "
                                 "(FLEET_KEYS)?");
    check_worker_is_not_answered(keys, make_keys("other"),
                                 "Has it keys of the same folder?");
}

TEST(a_worker_with_keys_talks_to_no_server_without)
{
    check_worker_is_not_answered(NULL, make_keys("keys"),
                                 "Has it keys of the same folder?");
}

/* --- the wire ------------------------------------------------------------- */

/* A job whose worker comes through a proxy, not begun yet. */
static void prepare_through(wire *w, ps_job *j, const char *keys)
{
    *j = held_job(keys);
    j->workers = 1;
    j->id = "planted-name";
    ps_prepare(j);
    ps_start(ps_server(j, 0));
    wire_listen(w, j->port[0]);
    snprintf(j->endpoints, sizeof j->endpoints, "127.0.0.1:%d", w->port);
    ps_start(ps_worker(j, 0));
}

/* What its worker has come to. */
static const char *run_through(wire *w, const char *keys, int64_t repeat_at)
{
    ps_job j;

    prepare_through(w, &j, keys);
    w->repeat_at = repeat_at;
    wire_start(w);
    ps_hear_held(&j);
    ps_let_go(&j);
    ps_check_all_end(&j);
    wire_close(w);
    return hash_of(&j);
}

static bool shows(const wire *w, const char *text)
{
    return wire_has(w, text, strlen(text));
}

/* The first weights of the tower, which the worker pulls. */
static const float *planted_weights(void)
{
    enum { N = 4 };
    static float weight[N];
    const ps_job j = held_job(NULL);
    fleet_options o = {.seed = 5}; /* a job's */
    const fl_param *p;
    scene s;

    scene_open_as(&s, &o, &j.how);
    s.e = fleet_executor_create(s.p, NULL);
    CHECK(s.e != NULL);
    p = fl_store_param(s.f->store, "tower_1.w");
    CHECK(p != NULL);
    memcpy(weight, p->flat->weight + fl_block_offset(p, 0), sizeof weight);
    scene_close(&s);
    return weight;
}

TEST(nobody_on_the_way_reads_along)
{
    const float *weight = planted_weights();
    wire w;

    run_through(&w, NULL, -1);
    CHECK(shows(&w, "planted-name") && shows(&w, "FLTM"));
    CHECK(wire_has(&w, weight, 4 * sizeof *weight));
    wire_done(&w);
    run_through(&w, make_keys("keys"), -1);
    CHECK(w.all.n > 10000);
    CHECK(!shows(&w, "planted-name") && !shows(&w, "FLTM"));
    CHECK(!wire_has(&w, weight, sizeof *weight));
    wire_done(&w);
}

/* What a worker has said, from its first word to its last gradient, is said
 * again by a stranger while the next job runs with the same keys. */
TEST(what_was_said_before_says_nothing)
{
    const char *keys = make_keys("keys"), *hash;
    wire before, w;
    ps_job j;

    hash = run_through(&before, keys, -1);
    prepare_through(&w, &j, keys);
    wire_start(&w);
    ps_hear_held(&j);
    for (int i = 0; i < 3; i++) {
        int fd = wire_connect(j.port[0]);

        wire_say(fd, before.first.bytes, before.first.n);
        wire_hear_end(fd);
    }
    CHECK_TEXT(let_end(&j), hash);
    CHECK(connections_refused(&j) >= 3);
    wire_close(&w);
    wire_done(&before);
    wire_done(&w);
}

/* Bytes of a gradient come twice on the worker's own connection: it breaks, and
 * the job goes on. */
TEST(what_is_said_twice_is_heard_once)
{
    const char *keys = make_keys("keys"), *hash;
    int64_t half;
    wire w;

    hash = run_through(&w, keys, -1);
    half = (int64_t)w.first.n / 2;
    wire_done(&w);
    CHECK_TEXT(run_through(&w, keys, half), hash);
    CHECK_INT(w.repeat_at, -1); /* it was */
    wire_done(&w);
}

/* --- what may be reached without keys ------------------------------------- */

static fleet_status only_begin(ps_node *n)
{
    return fleet_init_server(n->s.f, NULL);
}

static ps_job open_job(const char *host, const char *keys)
{
    ps_job j = {.serve = only_begin, .no_listen_fd = true, .keys = keys};

    ps_prepare(&j);
    close(j.listen_fd[0]);
    snprintf(j.endpoints, sizeof j.endpoints, "%s:%d", host, j.port[0]);
    return j;
}

static void check_may_listen(const char *host, const char *keys)
{
    ps_job j = open_job(host, keys);

    j.node[0].job = &j;
    ps_start(&j.node[0]);
    ps_check_ends(&j.node[0]);
}

static void check_may_not_listen(const char *host, const char *words)
{
    ps_job j = open_job(host, NULL);

    j.node[0].job = &j;
    ps_start(&j.node[0]);
    ps_check_fails(&j.node[0], words);
    CHECK_CONTAINS(ps_said(&j.node[0]), "FLEET_EINVAL");
}

TEST(without_keys_a_server_listens_on_loopback_alone)
{
    check_may_listen("127.0.0.1", NULL);
    check_may_listen("127.9.8.7", NULL);
    check_may_not_listen("0.0.0.0", "server 0 would listen at tcp://0.0.0.0:");
    check_may_not_listen("0.0.0.0",
                         "FLEET_KEYS names a folder of keys, made by "
                         "\"fleetrun keys FOLDER\"; FLEET_INSECURE=1 "
                         "lets everybody in");
    check_may_listen("0.0.0.0", make_keys("keys"));
    setenv("FLEET_INSECURE", "1", 1);
    check_may_listen("0.0.0.0", NULL);
}

/* Whatever the endpoint says. */
TEST(an_inherited_socket_that_other_machines_reach_needs_keys)
{
    struct sockaddr_in any = {.sin_family = AF_INET};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ps_job j = {.serve = only_begin};

    ps_prepare(&j);
    CHECK(bind(fd, (struct sockaddr *)&any, sizeof any) == 0 &&
          listen(fd, 9) == 0);
    CHECK(dup2(fd, j.listen_fd[0]) > 0);
    ps_start(ps_server(&j, 0));
    ps_check_fails(ps_server(&j, 0), "which other machines reach");
    close(fd);
}

TEST(each_process_of_a_job_without_keys_says_so)
{
    ps_job j = held_job(NULL);

    setenv("FLEET_INSECURE", "1", 1);
    ps_start_all(&j);
    ps_hear_held(&j);
    let_end(&j);
    for (int i = 0; i < j.n_node; i++)
        CHECK_CONTAINS(ps_said(&j.node[i]), "keys are off (FLEET_INSECURE)");
}

/* --- what the environment says -------------------------------------------- */

static void check_environment(const char *keys, const char *insecure,
                              fleet_status code, const char *words)
{
    fleet_role role = {.server_endpoints = "127.0.0.1:7000"};
    fleet_options o = {.role = &role};
    fleet *f;

    keys ? setenv("FLEET_KEYS", keys, 1) : unsetenv("FLEET_KEYS");
    insecure ? setenv("FLEET_INSECURE", insecure, 1)
             : unsetenv("FLEET_INSECURE");
    if (code != FLEET_OK) {
        CHECK_FAILS(fleet_init(&f, &o), code, words);
        return;
    }
    CHECK_OK(fleet_init(&f, &o));
    fleet_destroy(f);
}

TEST(the_environment_names_the_folder_of_keys)
{
    const char *keys = make_keys("keys");
    fleet_options o = {.keys = "/no/such/folder"};
    fleet *f;

    check_environment(keys, NULL, FLEET_OK, "");
    check_environment("", "0", FLEET_OK, "");
    check_environment("/no/such/folder", NULL, FLEET_ENOENT,
                      "the folder of keys /no/such/folder");
    check_environment(keys, "1", FLEET_EINVAL,
                      "FLEET_INSECURE is 1, but there are keys in ");
    check_environment(NULL, "yes", FLEET_EINVAL, "FLEET_INSECURE is \"yes\"");
    setenv("FLEET_INSECURE", "0", 1);
    CHECK_OK(fleet_init(&f, &o)); /* without servers nothing needs keys */
    fleet_destroy(f);
}
