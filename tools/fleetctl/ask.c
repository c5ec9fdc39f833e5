/* ask.c - messages to all lanes of a job, and their answers. */
#include "ask.h"

#include "said.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "net/socket.h"
#include "ps/control/control.h"
#include "ps/locality.h"
#include "ps/worker/handshake.h"

enum {
    AGAIN_MS = 300,
    MOST_OF_SERVER = FL_MSG_MOST_SECTION,
    IDLE_BYTES = 1 << 20
};

struct asked_job {
    const fl_role *role;
    const fl_keys *keys;
    fl_packet_pool *pool;
    uint64_t requests, command;
    int n; /* places: MOST_OF_SERVER for each server that there may be */
    asked_lane *lane;
    fl_socket **socket;
    char locality[160];
};

/* --- sockets -------------------------------------------------------------- */

static fleet_status connect_lane(asked_job *j, int at, const char *address)
{
    asked_lane *l = &j->lane[at];

    l->server = at / MOST_OF_SERVER;
    l->number = at % MOST_OF_SERVER;
    return fl_socket_connect_to(&j->socket[at], address, j->keys, l->server);
}

static fleet_status open_all(asked_job *j)
{
    j->n = FL_MOST_SERVER * MOST_OF_SERVER;
    FL_TRY(fl_packet_pool_create(&j->pool, IDLE_BYTES));
    FL_TRY(FL_NEW(&j->lane, (size_t)j->n * sizeof *j->lane));
    FL_TRY(FL_NEW(&j->socket, (size_t)j->n * sizeof(fl_socket *)));
    for (int i = 0; i < j->n; i++)
        j->lane[i].server = -1;
    fl_locality_text(j->locality);
    for (int s = 0; s < FL_MOST_SERVER; s++)
        if (*j->role->server[s])
            FL_TRY(connect_lane(j, s * MOST_OF_SERVER, j->role->server[s]));
    return FLEET_OK;
}

fleet_status ask_open(asked_job **j, const fl_role *role, const fl_keys *keys)
{
    fleet_status status;
    fl_error error;

    FL_TRY(FL_NEW(j, sizeof **j));
    (*j)->role = role;
    (*j)->keys = keys;
    status = open_all(*j);
    fl_error_take(&error, status);
    if (status != FLEET_OK) {
        ask_close(*j);
        *j = NULL;
    }
    return fl_error_raise(&error);
}

void ask_close(asked_job *j)
{
    if (!j)
        return;
    for (int i = 0; j->lane && j->socket && i < j->n; i++) {
        fl_json_free(j->lane[i].is);
        fl_socket_close(j->socket[i], 0);
    }
    fl_free(j->lane);
    fl_free(j->socket);
    fl_packet_pool_destroy(j->pool);
    fl_free(j);
}

/* --- questions ------------------------------------------------------------ */

static fleet_status say(asked_job *j, int at, const char *words)
{
    const fl_msg_head head = {.version = FL_MSG_VERSION,
                              .kind = FL_MSG_ADMIN,
                              .flags = FL_MSG_CRC_ALL,
                              .job = fl_msg_job(j->role->job_id, 0),
                              .stream = FL_CONTROL_STREAM,
                              .request = ++j->requests};
    fl_msg_writer w;
    fl_packet *p;

    fl_msg_begin(&w, j->pool, &head);
    fl_msg_text(&w, FL_SECTION_TEXT, words);
    FL_TRY(fl_msg_end(&w, true, &p));
    fl_socket_send(j->socket[at], NULL, p); /* a lost one is sent again */
    fl_packet_drop(p);
    return FLEET_OK;
}

static fleet_status ask_lane(asked_job *j, int at)
{
    return say(j, at, FL_CONTROL_STATUS);
}

static fleet_status ask_silent(asked_job *j)
{
    for (int i = 0; i < j->n; i++)
        if (j->lane[i].server >= 0 && !j->lane[i].is)
            FL_TRY(ask_lane(j, i));
    return FLEET_OK;
}

/* --- answers -------------------------------------------------------------- */

static char *text_of(const fl_msg *msg, int section)
{
    const fl_frame *f = &msg->column[section][FL_AT_BYTES];

    return fl_strndup(f->data ? f->data : "", f->size);
}

/* The first lane of a server says where the others are, and the copies that its
 * process has. */
static fleet_status meet_others(asked_job *j, int at, const fl_msg *msg)
{
    const char *first = j->role->server[j->lane[at].server];

    for (int i = 2; i < msg->head.n_section && i <= MOST_OF_SERVER; i++) {
        char *text = text_of(msg, i);
        fl_hello_lane lane = {0};
        fleet_status status = FLEET_ENOMEM;

        if (text)
            status = fl_hello_read_lane(first, i - 1, text, j->locality,
                                        j->role->tcp_only, &lane);
        fl_free(text);
        FL_TRY(status);
        FL_TRY(connect_lane(j, at + i - 1, lane.address));
        FL_TRY(ask_lane(j, at + i - 1));
    }
    return FLEET_OK;
}

/* A server knows of servers that have joined the job: they are asked, too. */
static fleet_status meet_joined(asked_job *j, const asked_lane *l)
{
    fl_at at = fl_at_root(l->is), list = fl_at_key(&at, "joined");

    for (int i = 0;; i++) {
        fl_at one = fl_at_index(&list, i);
        int64_t server = one.json ? said_number(&one, "server") : -1;
        const char *address;

        if (server < j->role->server_num || server >= FL_MOST_SERVER)
            return FLEET_OK;
        address = said_text(&one, "address");
        if (*j->role->server[server] || !strrchr(address, ':'))
            continue;
        snprintf(j->role->server[server], sizeof(fl_address), "%s", address);
        FL_TRY(connect_lane(j, ask_first_of((int)server), address));
        FL_TRY(ask_lane(j, ask_first_of((int)server)));
    }
}

static fleet_status refused(const fl_msg *msg)
{
    char *why = fl_msg_get_text(msg, FL_SECTION_TEXT);
    fleet_status status = fl_fail(fl_msg_code(msg->head.step, FLEET_EINVAL),
                                  "refused: %s", why ? why : "without a word");

    fl_free(why);
    return status;
}

static fleet_status take_answer(asked_job *j, int at, const fl_packet *p)
{
    static fl_msg msg;
    asked_lane *l = &j->lane[at];
    char *text;
    fleet_status status;

    if (l->is || fl_msg_decode(p, &msg) != FLEET_OK ||
        msg.head.kind != FL_MSG_ANSWER)
        return FLEET_OK;
    if (msg.head.status != FL_ANSWER_OK)
        return refused(&msg);
    text = fl_msg_get_text(&msg, FL_SECTION_TEXT);
    if (!text)
        return FLEET_OK;
    status = fl_json_parse(text, strlen(text), "what a lane says", &l->is);
    fl_free(text);
    FL_TRY(status);
    if (l->number > 0)
        return FLEET_OK;
    FL_TRY(meet_others(j, at, &msg));
    return meet_joined(j, l);
}

static fleet_status receive(asked_job *j, int at)
{
    fl_packet *p;

    while (fl_socket_receive(j->socket[at], NULL, &p) == FLEET_OK && p) {
        fleet_status status = take_answer(j, at, p);

        fl_packet_drop(p);
        FL_TRY(status);
    }
    return FLEET_OK;
}

/* Some process leads it. Of its own lanes a server has the first places. */
static bool is_led(const asked_job *j, int server, int lane)
{
    for (int i = 0; i < j->n; i++) {
        fl_at at = fl_at_root(j->lane[i].is);

        if (j->lane[i].is && said_leads(&j->lane[i]) &&
            said_number(&at, "server") == server &&
            said_number(&at, "lane") == lane)
            return true;
    }
    return false;
}

/* One that has joined may have ended: what it had another process has, or it is
 * missed as that server's lanes. */
bool ask_misses(const asked_job *j, int at)
{
    const asked_lane *l = &j->lane[at];

    return l->server >= 0 && l->server < j->role->server_num && !l->is &&
           !is_led(j, l->server, l->number);
}

bool ask_is_whole(const asked_job *j)
{
    int64_t lanes[FL_MOST_SERVER] = {0};

    for (int i = 0; i < j->n; i++) {
        fl_at at = fl_at_root(j->lane[i].is);
        int64_t server = j->lane[i].is ? said_number(&at, "server") : -1;

        if (server >= 0 && server < j->role->server_num)
            lanes[server] = said_number(&at, "lanes");
    }
    for (int s = 0; s < j->role->server_num; s++) {
        if (lanes[s] < 1)
            return false;
        for (int k = 0; k < lanes[s]; k++)
            if (!is_led(j, s, k))
                return false;
    }
    return true;
}

/* One whose lane another process leads may have lanes of others. */
static bool all_have_answered(const asked_job *j, int also)
{
    for (int i = 0; i < j->n; i++)
        if (ask_misses(j, i))
            return false;
    return ask_is_whole(j) && (also < 0 || j->lane[ask_first_of(also)].is);
}

/* One of them may say something; or it is time to ask again. */
static fleet_status wait_for_any(asked_job *j, int ms)
{
    fl_socket *silent[1024];
    int n = 0;

    for (int i = 0; i < j->n && n < 1024; i++)
        if (j->lane[i].server >= 0 && !j->lane[i].is)
            silent[n++] = j->socket[i];
    return fl_socket_wait(silent, n, NULL, ms);
}

fleet_status ask_all(asked_job *j, int also, int timeout_ms)
{
    int64_t end_ms = fl_now_ms() + timeout_ms, again_ms = 0;

    while (!all_have_answered(j, also) && fl_now_ms() < end_ms) {
        if (fl_now_ms() >= again_ms) {
            FL_TRY(ask_silent(j));
            again_ms = fl_now_ms() + AGAIN_MS;
        }
        FL_TRY(wait_for_any(j, AGAIN_MS / 10));
        for (int i = 0; i < j->n; i++)
            if (j->lane[i].server >= 0)
                FL_TRY(receive(j, i));
    }
    return FLEET_OK;
}

const asked_lane *ask_lanes(const asked_job *j, int *n)
{
    *n = j->n;
    return j->lane;
}

/* --- commands ------------------------------------------------------------- */

/* Answers of before may still come: they are of other requests. */
static fleet_status hear_command(asked_job *j, int at, bool *done)
{
    static fl_msg msg;
    fl_packet *p;

    while (fl_socket_receive(j->socket[at], NULL, &p) == FLEET_OK && p) {
        fleet_status status = FLEET_OK;

        if (fl_msg_decode(p, &msg) == FLEET_OK &&
            msg.head.kind == FL_MSG_ANSWER && msg.head.request >= j->command) {
            *done = true;
            if (msg.head.status != FL_ANSWER_OK)
                status = refused(&msg);
        }
        fl_packet_drop(p);
        FL_TRY(status);
    }
    return FLEET_OK;
}

fleet_status ask_command(asked_job *j, int at, const char *words,
                         int timeout_ms)
{
    int64_t end_ms = fl_now_ms() + timeout_ms;
    bool done = false;

    j->command = j->requests + 1;
    while (!done && fl_now_ms() < end_ms) {
        FL_TRY(say(j, at, words));
        FL_TRY(fl_socket_wait(&j->socket[at], 1, NULL, AGAIN_MS));
        FL_TRY(hear_command(j, at, &done));
    }
    if (done)
        return FLEET_OK;
    return fl_fail(FLEET_ETIMEDOUT, "server %d does not answer",
                   j->lane[at].server);
}

int ask_first_of(int server)
{
    return server * MOST_OF_SERVER;
}
