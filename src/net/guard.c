/* guard.c - CURVE's options of sockets, the thread that answers ZAP's requests,
 * and the events of connections that were not let in. */
#include "net/guard.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#include "base/memory.h"
#include "base/thread.h"
#include "net/wakeup.h"
#include "net/zmq_context.h"

enum { DOMAIN_SIZE = 32, USER_SIZE = 32 };

static const char sender_prefix[] = "sender "; /* of ZAP's user id */

struct fl_guard {
    const fl_keys *keys;
    int server[2];       /* that are let in, too; -1: none */
    bool all_servers;    /* are */
    uint64_t generation; /* of fork() */
    char domain[DOMAIN_SIZE];
    fl_guard *next;
};

/* The handler: guards come and go under `life`; its thread reads their list
 * under `lock`. */
static struct {
    pthread_mutex_t life, lock;
    fl_guard *first;
    unsigned n_made;
    void *zmq;
    fl_wakeup wakeup;
    pthread_t thread;
} handler = {.life = PTHREAD_MUTEX_INITIALIZER,
             .lock = PTHREAD_MUTEX_INITIALIZER};

static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

/* A child does not have its parent's threads. */
static void forget_handler(void)
{
    pthread_mutex_init(&handler.life, NULL);
    pthread_mutex_init(&handler.lock, NULL);
    handler.first = NULL;
    handler.zmq = NULL;
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, forget_handler);
}

/* --- ZAP ------------------------------------------------------------------ */

/* The frames of a request, in their order; of PLAIN, which no socket takes,
 * it has one more. */
typedef enum zap_frame {
    ZAP_VERSION,
    ZAP_NUMBER,
    ZAP_DOMAIN,
    ZAP_ADDRESS,
    ZAP_NAME,
    ZAP_MECHANISM,
    ZAP_KEY,
    ZAP_FRAMES
} zap_frame;

enum { MOST_FRAME = 256 };

typedef struct zap_request {
    char frame[ZAP_FRAMES][MOST_FRAME + 1];
    int size[ZAP_FRAMES], n;
} zap_request;

static bool receive_frame(void *zmq, char *frame, int *size)
{
    int more = 0;
    size_t length = sizeof more;

    *size = zmq_recv(zmq, frame, MOST_FRAME, ZMQ_DONTWAIT);
    if (*size < 0)
        return false;
    *size = *size < MOST_FRAME ? *size : MOST_FRAME;
    frame[*size] = 0;
    zmq_getsockopt(zmq, ZMQ_RCVMORE, &more, &length);
    return more;
}

static bool receive_request(void *zmq, zap_request *r)
{
    char rest[MOST_FRAME + 1];
    bool more = true;
    int size;

    for (r->n = 0; more && r->n < ZAP_FRAMES; r->n++) {
        more = receive_frame(zmq, r->frame[r->n], &r->size[r->n]);
        if (r->size[r->n] < 0)
            return false;
    }
    while (more)
        more = receive_frame(zmq, rest, &size);
    return true;
}

/* ZeroMQ has for a peer that came by tcp the number of its host; for one that
 * came by ipc, "localhost:" and which process it is; for inproc, nothing. */
static bool came_by_ipc(const char *address)
{
    return strncmp(address, "localhost:", 10) == 0;
}

/* Sockets of ipc are in a folder of this user alone: a peer there is let in,
 * and so is one of a socket without keys. ZeroMQ asks for them, too, as each
 * socket has a domain. */
static bool is_open(const zap_request *r)
{
    return r->n > ZAP_MECHANISM &&
           (came_by_ipc(r->frame[ZAP_ADDRESS]) ||
            strcmp(r->frame[ZAP_DOMAIN], FL_GUARD_NONE) == 0) &&
           strcmp(r->frame[ZAP_MECHANISM], "NULL") == 0;
}

/* As fl_guard_sender() has it: the process of that key; 0: none that is let
 * in. */
static int sender_of(const fl_guard *g, const uint8_t *key)
{
    int worker = fl_keys_find(g->keys, FL_ROLE_WORKER, key);
    int subscriber = fl_keys_find(g->keys, FL_ROLE_SUBSCRIBER, key);
    int server = fl_keys_find(g->keys, FL_ROLE_SERVER, key);
    bool controls = fl_keys_find(g->keys, FL_ROLE_CONTROL, key) >= 0;
    bool is_let_in = server >= 0 && (g->all_servers || server == g->server[0] ||
                                     server == g->server[1]);

    return worker >= 0       ? worker + 1
           : subscriber >= 0 ? subscriber + FL_GUARD_SUBSCRIBER
           : is_let_in       ? server + FL_GUARD_SERVER
           : controls        ? FL_GUARD_CONTROL
                             : 0;
}

/* The process that asks to come in. */
static int find_sender(const zap_request *r)
{
    int sender = 0;

    if (r->n < ZAP_FRAMES || r->size[ZAP_KEY] != FL_KEY_BYTES ||
        strcmp(r->frame[ZAP_MECHANISM], "CURVE") != 0)
        return 0;
    pthread_mutex_lock(&handler.lock);
    for (const fl_guard *g = handler.first; g; g = g->next)
        if (strcmp(g->domain, r->frame[ZAP_DOMAIN]) == 0)
            sender = sender_of(g, (const uint8_t *)r->frame[ZAP_KEY]);
    pthread_mutex_unlock(&handler.lock);
    return sender;
}

static void answer_request(void *zmq, const zap_request *r)
{
    int sender = find_sender(r);
    bool enters = sender > 0 || is_open(r);
    char user[USER_SIZE] = "";
    const char *code = enters ? "200" : "400";
    const char *text = enters ? "" : "no key of this job";

    if (sender > 0)
        snprintf(user, sizeof user, "%s%d", sender_prefix, sender);
    zmq_send(zmq, "1.0", 3, ZMQ_SNDMORE);
    zmq_send(zmq, r->frame[ZAP_NUMBER], (size_t)r->size[ZAP_NUMBER],
             ZMQ_SNDMORE);
    zmq_send(zmq, code, 3, ZMQ_SNDMORE);
    zmq_send(zmq, text, strlen(text), ZMQ_SNDMORE);
    zmq_send(zmq, user, strlen(user), ZMQ_SNDMORE);
    zmq_send(zmq, "", 0, 0);
}

static void *run_handler(void *arg)
{
    zmq_pollitem_t item[2] = {{.socket = handler.zmq, .events = ZMQ_POLLIN},
                              {.fd = handler.wakeup.fd, .events = ZMQ_POLLIN}};
    zap_request request;

    (void)arg;
    while (zmq_poll(item, 2, -1) >= 0 || errno == EINTR) {
        if (item[1].revents)
            break;
        if (item[0].revents && receive_request(handler.zmq, &request) &&
            request.n > ZAP_NUMBER)
            answer_request(handler.zmq, &request);
    }
    return NULL;
}

/* --- the handler's life, under `life` ------------------------------------- */

static fleet_status start_handler(void)
{
    static const char address[] = "inproc://zeromq.zap.01";
    fleet_status status;

    FL_TRY(fl_wakeup_create(&handler.wakeup));
    FL_GOTO(failed, fl_zmq_open(&handler.zmq, ZMQ_REP));
    if (zmq_bind(handler.zmq, address) != 0)
        status =
            fl_fail(FLEET_EIO, "cannot ask for keys: another handler is at %s",
                    address);
    else
        status = fl_thread_start(&handler.thread, run_handler, NULL,
                                 "the check of keys");
    if (status == FLEET_OK)
        return FLEET_OK;
    fl_zmq_close(handler.zmq);
    handler.zmq = NULL;
failed:
    fl_wakeup_destroy(&handler.wakeup);
    return status;
}

static void stop_handler(void)
{
    fl_wakeup_ring(&handler.wakeup);
    pthread_join(handler.thread, NULL);
    fl_zmq_close(handler.zmq);
    handler.zmq = NULL;
    fl_wakeup_destroy(&handler.wakeup);
}

static void enlist(fl_guard *g)
{
    pthread_mutex_lock(&handler.lock);
    g->next = handler.first;
    handler.first = g;
    pthread_mutex_unlock(&handler.lock);
}

static void delist(const fl_guard *g)
{
    fl_guard **at = &handler.first;

    pthread_mutex_lock(&handler.lock);
    while (*at && *at != g)
        at = &(*at)->next;
    if (*at)
        *at = g->next;
    pthread_mutex_unlock(&handler.lock);
}

fleet_status fl_guard_create(fl_guard **g, const fl_keys *keys)
{
    fleet_status status = FLEET_OK;

    pthread_once(&fork_once, watch_forks);
    FL_TRY(FL_NEW(g, sizeof **g));
    (*g)->keys = keys;
    (*g)->server[0] = (*g)->server[1] = -1;
    (*g)->generation = fl_fork_generation();
    pthread_mutex_lock(&handler.life);
    snprintf((*g)->domain, DOMAIN_SIZE, "libfleet-%u", ++handler.n_made);
    if (!handler.first)
        status = start_handler();
    if (status == FLEET_OK)
        enlist(*g);
    pthread_mutex_unlock(&handler.life);
    if (status != FLEET_OK) {
        fl_free(*g);
        *g = NULL;
    }
    return status;
}

void fl_guard_let_in(fl_guard *g, int server)
{
    pthread_mutex_lock(&handler.lock);
    g->server[g->server[0] >= 0] = server;
    pthread_mutex_unlock(&handler.lock);
}

void fl_guard_let_in_servers(fl_guard *g)
{
    pthread_mutex_lock(&handler.lock);
    g->all_servers = true;
    pthread_mutex_unlock(&handler.lock);
}

void fl_guard_destroy(fl_guard *g)
{
    if (!g)
        return;
    if (g->generation == fl_fork_generation()) {
        pthread_mutex_lock(&handler.life);
        delist(g);
        if (!handler.first)
            stop_handler();
        pthread_mutex_unlock(&handler.life);
    }
    fl_free(g);
}

/* --- sockets -------------------------------------------------------------- */

static void set_number(void *zmq, int name, int value)
{
    zmq_setsockopt(zmq, name, &value, sizeof value);
}

static bool set_key(void *zmq, int name, const fl_key key)
{
    return zmq_setsockopt(zmq, name, key, FL_KEY_SIZE) == 0;
}

/* A listener has the options that its socket had when it was bound. */
void fl_guard_set(const fl_guard *g, void *zmq, bool guarded)
{
    if (guarded)
        set_key(zmq, ZMQ_CURVE_SECRETKEY, g->keys->secret);
    set_number(zmq, ZMQ_CURVE_SERVER, guarded);
    zmq_setsockopt(zmq, ZMQ_ZAP_DOMAIN, g->domain, strlen(g->domain));
}

fleet_status fl_guard_pin(const fl_keys *keys, fl_key_role role, int number,
                          void *zmq)
{
    if (number >= keys->n[role] || !*keys->known[role][number])
        return fl_fail(FLEET_ENOENT, "the folder of keys has none of %s %d",
                       role == FL_ROLE_SERVER ? "server" : "worker", number);
    if (set_key(zmq, ZMQ_CURVE_SERVERKEY, keys->known[role][number]) &&
        set_key(zmq, ZMQ_CURVE_PUBLICKEY, keys->own) &&
        set_key(zmq, ZMQ_CURVE_SECRETKEY, keys->secret))
        return FLEET_OK;
    return fl_fail(FLEET_EUNSUPPORTED, "ZeroMQ does not take a key: %s",
                   zmq_strerror(errno));
}

int fl_guard_sender(void *message)
{
    const char *user = zmq_msg_gets(message, "User-Id");
    const char *address = zmq_msg_gets(message, "Peer-Address");

    if (!address || came_by_ipc(address))
        return 0;
    if (!user || strncmp(user, sender_prefix, sizeof sender_prefix - 1) != 0)
        return FL_GUARD_NOBODY;
    return atoi(user + sizeof sender_prefix - 1);
}

bool fl_guard_is_far(void *message)
{
    const char *address = zmq_msg_gets(message, "Peer-Address");

    return address && !came_by_ipc(address) &&
           strncmp(address, "127.", 4) != 0 && strcmp(address, "::1") != 0 &&
           strncmp(address, "::ffff:127.", 11) != 0;
}

/* --- peers that were not let in ------------------------------------------- */

fleet_status fl_guard_watch(void *zmq, void **watch)
{
    static atomic_uint number;
    const int all = ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL |
                    ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |
                    ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;
    char address[64];

    snprintf(address, sizeof address, "inproc://libfleet-refused-%u",
             atomic_fetch_add(&number, 1));
    FL_TRY(fl_zmq_open(watch, ZMQ_PAIR));
    set_number(*watch, ZMQ_RCVHWM, 0); /* ZeroMQ's thread must not wait */
    set_number(*watch, ZMQ_LINGER, 0);
    if (zmq_socket_monitor(zmq, address, all) == 0 &&
        zmq_connect(*watch, address) == 0)
        return FLEET_OK;
    fl_guard_unwatch(zmq, *watch);
    *watch = NULL;
    return fl_fail(FLEET_EIO, "cannot watch connections: %s",
                   zmq_strerror(errno));
}

/* An event is a frame with its kind and a second one with an address. */
uint64_t fl_guard_refused(void *watch)
{
    char frame[MOST_FRAME + 1];
    uint64_t n = 0;
    int size = 0;

    while (watch && size >= 0)
        n += !receive_frame(watch, frame, &size) && size >= 0;
    return n;
}

void fl_guard_unwatch(void *zmq, void *watch)
{
    if (!watch)
        return;
    zmq_socket_monitor(zmq, NULL, 0);
    fl_zmq_close(watch);
}
