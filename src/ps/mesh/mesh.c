/* mesh.c - workers find each other; then each sends each a packet a round. */
#include "ps/mesh/mesh.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/memory.h"
#include "net/own_address.h"
#include "net/socket.h"

enum {
    MAGIC = 0x48534d46,          /* "FMSH" */
    WORDS = FL_ADDRESS_SIZE / 4, /* of an address, of 4 characters each */
    LOOK_MS = 50,                /* how often a wait asks how the job does */
    FRAME = 32 << 20,            /* a message is cut into pieces of that size */
    IDLE = 64 << 20              /* bytes of packets that are kept */
};

typedef struct mesh_head {
    uint32_t magic, from;
    uint64_t nonce; /* of this mesh: its workers alone know it */
    uint64_t round;
    int64_t size; /* below 0: the worker gives up */
} mesh_head;

struct fl_mesh {
    fl_mesh_options o;
    uint64_t nonce, round;
    fl_guard *guard;
    fl_socket *listener;
    fl_socket **to; /* by worker; this one's NULL */
    fl_packet_pool *pool;
    fl_packet **came; /* by worker: of this round and of the next one, which a
                         worker may have begun */
    int gone;         /* a worker that gives up; -1: none has said so */
    char **joined;    /* by worker: a message of several frames */
    size_t *room;
};

/* --- addresses ------------------------------------------------------------ */

/* The number of this host's interface that leads to the server. */
static fleet_status own_host(const char *server, fl_address host)
{
    fl_address numeric, to;
    char *colon;

    FL_TRY(fl_address_resolve(server, numeric));
    if (fl_address_is_local(numeric)) {
        strcpy(host, "127.0.0.1");
        return FLEET_OK;
    }
    colon = strrchr(numeric, ':');
    *colon = 0;
    return fl_address_route(numeric + strlen("tcp://"), atoi(colon + 1), to,
                            host);
}

static fleet_status listen_at(fl_mesh *m, fl_address bound)
{
    char name[40];
    fl_address host, at;

    FL_TRY(own_host(m->o.server, host));
    snprintf(at, sizeof at, "tcp://%.*s:0", (int)sizeof at - 9, host);
    snprintf(name, sizeof name, "worker %d", m->o.index);
    if (!m->o.keys && !m->o.insecure)
        FL_TRY(fl_address_check_keyless(name, at, -1));
    FL_TRY(fl_socket_listen(&m->listener));
    if (m->o.keys) {
        FL_TRY(fl_guard_create(&m->guard, m->o.keys));
        FL_TRY(fl_socket_guard(m->listener, m->guard));
    }
    return fl_socket_bind(m->listener, at, -1, bound);
}

/* All workers' addresses, as numbers that can be added up, and the first one's
 * nonce. */
static fleet_status share_addresses(fl_mesh *m, fl_address own, double *x,
                                    fl_address *all)
{
    const int n = m->o.n;
    uint32_t word[WORDS] = {0};

    memcpy(word, own, strlen(own));
    for (int i = 0; i < WORDS; i++)
        x[m->o.index * WORDS + i] = word[i];
    if (m->o.index == 0) {
        const uint64_t nonce = fl_nonce();

        x[n * WORDS] = (uint32_t)nonce;
        x[n * WORDS + 1] = (uint32_t)(nonce >> 32);
    }
    FL_TRY(m->o.sum(m->o.arg, x, n * WORDS + 2));
    for (int w = 0; w < n; w++) {
        for (int i = 0; i < WORDS; i++)
            word[i] = (uint32_t)x[w * WORDS + i];
        memcpy(all[w], word, sizeof all[w]);
        all[w][FL_ADDRESS_SIZE - 1] = 0;
    }
    m->nonce = (uint64_t)x[n * WORDS] | (uint64_t)x[n * WORDS + 1] << 32;
    return FLEET_OK;
}

/* A worker that cannot listen has no address. */
static fleet_status connect_all(fl_mesh *m, fl_address *all)
{
    for (int w = 0; w < m->o.n; w++) {
        if (!*all[w])
            return fl_fail(FLEET_EPEER, "worker %d cannot listen", w);
        if (w != m->o.index)
            FL_TRY(fl_socket_connect_worker(&m->to[w], all[w], m->o.keys, w));
    }
    return FLEET_OK;
}

/* Also a worker that has failed takes part, so that no other one waits. */
static fleet_status meet_workers(fl_mesh *m)
{
    const size_t n = (size_t)m->o.n;
    fl_address own = "", *all = NULL;
    fleet_status status, failed;
    double *x = NULL;
    fl_error kept;

    FL_GOTO(done, FL_NEW(&x, (n * WORDS + 2) * sizeof *x));
    FL_GOTO(done, FL_NEW(&all, n * sizeof *all));
    failed = listen_at(m, own);
    if (failed != FLEET_OK) {
        fl_error_take(&kept, failed);
        *own = 0;
    }
    status = share_addresses(m, own, x, all);
    if (failed != FLEET_OK)
        status = fl_error_raise(&kept);
    if (status == FLEET_OK)
        status = connect_all(m, all);
done:
    fl_free(x);
    fl_free(all);
    return status;
}

static fleet_status make_room(fl_mesh *m)
{
    const size_t n = (size_t)m->o.n;

    FL_TRY(FL_NEW(&m->to, n * sizeof(fl_socket *)));
    FL_TRY(FL_NEW(&m->came, 2 * n * sizeof(fl_packet *)));
    FL_TRY(FL_NEW(&m->joined, n * sizeof(char *)));
    FL_TRY(FL_NEW(&m->room, n * sizeof *m->room));
    return fl_packet_pool_create(&m->pool, IDLE);
}

fleet_status fl_mesh_open(fl_mesh **mesh, const fl_mesh_options *o)
{
    fleet_status status;
    fl_mesh *m;

    FL_TRY(FL_NEW(&m, sizeof *m));
    m->o = *o;
    m->gone = -1;
    status = make_room(m);
    if (status == FLEET_OK)
        status = meet_workers(m);
    if (status == FLEET_OK)
        *mesh = m;
    else
        fl_mesh_close(m);
    return status;
}

void fl_mesh_close(fl_mesh *m)
{
    if (!m)
        return;
    for (int w = 0; w < m->o.n; w++) {
        if (m->to)
            fl_socket_close(m->to[w], LOOK_MS);
        if (m->joined)
            fl_free(m->joined[w]);
        for (int k = 0; m->came && k < 2; k++)
            fl_packet_drop(m->came[2 * w + k]);
    }
    fl_socket_close(m->listener, 0);
    fl_guard_destroy(m->guard);
    fl_packet_pool_destroy(m->pool);
    fl_free(m->to);
    fl_free(m->came);
    fl_free(m->joined);
    fl_free(m->room);
    fl_free(m);
}

/* --- sent ----------------------------------------------------------------- */

static fleet_status fill_packet(const fl_mesh *m, fl_packet *p,
                                const char *data, int64_t size)
{
    const mesh_head head = {.magic = MAGIC,
                            .from = (uint32_t)m->o.index,
                            .nonce = m->nonce,
                            .round = m->round,
                            .size = size};
    int64_t done = 0, n;
    char *at;

    /* of one frame, if it can be: libzmq aborts where a connection ends while a
     * socket is closed that has sent a part of a message of several */
    do {
        const size_t ahead = done == 0 ? sizeof head : 0;

        n = size - done < FRAME ? size - done : FRAME;
        n = n > 0 ? n : 0;
        at = fl_packet_add(p, ahead + (size_t)n);
        if (!at)
            return fl_last_code();
        memcpy(at, &head, ahead);
        if (n > 0)
            memcpy(at + ahead, data + done, (size_t)n);
        done += n;
    } while (done < size);
    return FLEET_OK;
}

static fleet_status send_to(fl_mesh *m, int worker, const char *data,
                            int64_t size)
{
    fleet_status status;
    fl_packet *p;

    FL_TRY(fl_packet_create(m->pool, &p));
    status = fill_packet(m, p, data, size);
    if (status == FLEET_OK)
        status = fl_socket_send(m->to[worker], NULL, p);
    fl_packet_drop(p);
    return status;
}

/* All other workers hear of a failure. One that can't be told misses this
 * worker for the deadline. */
static fleet_status give_up(fl_mesh *m, fleet_status status)
{
    fl_error kept;

    fl_error_take(&kept, status);
    for (int w = 0; w < m->o.n; w++)
        if (w != m->o.index)
            (void)send_to(m, w, NULL, -1);
    return fl_error_raise(&kept);
}

/* --- received ------------------------------------------------------------- */

/* NULL: it is none of a worker of this mesh. */
static bool read_head(const fl_mesh *m, const fl_packet *p, const fl_peer *from,
                      mesh_head *head)
{
    int64_t size = 0;

    if (p->n_frame < 1 || p->frame[0].size < sizeof *head)
        return false;
    memcpy(head, p->frame[0].data, sizeof *head);
    for (int i = 0; i < p->n_frame; i++)
        size += (int64_t)p->frame[i].size;
    size -= (int64_t)sizeof *head;
    return head->magic == MAGIC && head->nonce == m->nonce &&
           head->from < (uint32_t)m->o.n && (int)head->from != m->o.index &&
           (head->size < 0 ? 0 : head->size) == size &&
           (!m->o.keys || from->sender == (int32_t)head->from + 1) &&
           (head->size < 0 || head->round == m->round ||
            head->round == m->round + 1);
}

static fleet_status take_packets(fl_mesh *m, bool *any)
{
    fl_packet *p;
    mesh_head head;
    fl_peer from;

    for (*any = false;; *any = true) {
        fl_packet **to = NULL;

        FL_TRY(fl_socket_receive(m->listener, &from, &p));
        if (!p)
            return FLEET_OK;
        if (read_head(m, p, &from, &head)) {
            if (head.size < 0)
                m->gone = (int)head.from;
            else
                to = &m->came[2 * head.from + head.round % 2];
        }
        if (to && !*to)
            *to = p;
        else
            fl_packet_drop(p);
    }
}

static int first_missing(const fl_mesh *m)
{
    for (int w = 0; w < m->o.n; w++)
        if (w != m->o.index && !m->came[2 * w + (int)(m->round % 2)])
            return w;
    return -1;
}

/* Whatever the round in which it says so: it may be one behind, or before. */
static fleet_status check_all_go_on(const fl_mesh *m)
{
    return m->gone < 0
               ? FLEET_OK
               : fl_fail(FLEET_EPEER, "worker %d gives up, as it has failed",
                         m->gone);
}

/* What has come is looked at before the clock: a process that was stopped has
 * its messages waiting. */
static fleet_status wait_for_all(fl_mesh *m)
{
    fl_awake awake =
        fl_awake_from(fl_now_ms(), fl_awake_step(m->o.deadline_ms));
    int64_t heard_ms = awake.ms, now_ms;

    for (bool any;;) {
        const fleet_status status = take_packets(m, &any);
        const int missing = first_missing(m);

        if (status != FLEET_OK)
            return give_up(m, status);
        FL_TRY(check_all_go_on(m));
        if (missing < 0)
            return FLEET_OK;
        FL_TRY(m->o.status(m->o.arg));
        now_ms = fl_awake_at(&awake, fl_now_ms());
        heard_ms = any ? now_ms : heard_ms;
        if (now_ms - heard_ms > m->o.deadline_ms)
            return fl_fail(FLEET_ETIMEDOUT,
                           "worker %d has sent nothing for %" PRId64 " ms",
                           missing, now_ms - heard_ms);
        FL_TRY(fl_socket_wait(&m->listener, 1, NULL, LOOK_MS));
    }
}

/* Side by side: frames of one message. */
static fleet_status join_frames(fl_mesh *m, int worker, const fl_packet *p,
                                int64_t size, const char **in)
{
    const char *first = (const char *)p->frame[0].data + sizeof(mesh_head);
    size_t at = p->frame[0].size - sizeof(mesh_head);

    if (p->n_frame == 1) {
        *in = size > 0 ? first : NULL;
        return FLEET_OK;
    }
    FL_TRY(fl_grow(&m->joined[worker], &m->room[worker], (size_t)size, 1));
    memcpy(m->joined[worker], first, at);
    for (int i = 1; i < p->n_frame; at += p->frame[i++].size)
        memcpy(m->joined[worker] + at, p->frame[i].data, p->frame[i].size);
    *in = m->joined[worker];
    return FLEET_OK;
}

static fleet_status hand_out(fl_mesh *m, const char **in, int64_t *from)
{
    for (int w = 0; w < m->o.n; w++) {
        const fl_packet *p = m->came[2 * w + (int)(m->round % 2)];
        mesh_head head;

        if (w == m->o.index)
            continue;
        memcpy(&head, p->frame[0].data, sizeof head);
        from[w] = head.size;
        FL_TRY(join_frames(m, w, p, head.size, &in[w]));
    }
    return FLEET_OK;
}

/* Messages of the round before were good until now. */
static void forget_round_before(fl_mesh *m)
{
    for (int w = 0; w < m->o.n; w++) {
        fl_packet **p = &m->came[2 * w + (int)((m->round + 1) % 2)];

        fl_packet_drop(*p);
        *p = NULL;
    }
}

static fleet_status send_all(fl_mesh *m, const char *const *out,
                             const int64_t *to)
{
    for (int w = 0; w < m->o.n; w++)
        if (w != m->o.index)
            FL_TRY(send_to(m, w, out[w], to[w]));
    return FLEET_OK;
}

fleet_status fl_mesh_round(void *mesh, const char *const *out,
                           const int64_t *to, const char **in, int64_t *from)
{
    fl_mesh *m = mesh;
    fleet_status status;

    forget_round_before(m);
    status = send_all(m, out, to);
    if (status != FLEET_OK)
        return give_up(m, status);
    in[m->o.index] = out[m->o.index];
    from[m->o.index] = to[m->o.index];
    FL_TRY(wait_for_all(m));
    status = hand_out(m, in, from);
    if (status != FLEET_OK)
        return give_up(m, status);
    m->round++;
    return FLEET_OK;
}
