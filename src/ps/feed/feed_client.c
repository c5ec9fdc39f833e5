/* feed_client.c - hellos, questions, answers of a subscriber. */
#include <string.h>

#include "base/memory.h"
#include "ps/feed/feed_internal.h"

enum {
    AGAIN_MS = 1000, /* a question that has no answer by then was lost */
    COMING_MS = 200  /* until a server that is not ready is asked again */
};

/* --- messages ------------------------------------------------------------- */

static fl_msg_head head_of(fl_feed_client *c, uint64_t job, uint32_t peer,
                           uint32_t generation)
{
    return (fl_msg_head){.version = FL_MSG_VERSION,
                         .kind = FL_MSG_FEED,
                         .flags = FL_MSG_CRC_ALL,
                         .job = job,
                         .generation = generation,
                         .stream = FL_FEED_STREAM | (uint32_t)c->o.subscriber,
                         .incarnation = c->o.incarnation,
                         .request = ++c->last_request,
                         .peer = peer,
                         .timeout_ms = (uint32_t)c->o.peer_ms};
}

static void fail_with(fl_feed_client *c, fleet_status status)
{
    if (c->error.code == FLEET_OK)
        fl_error_take(&c->error, status);
}

static void send_to(fl_feed_client *c, int socket, fl_msg_writer *w)
{
    fl_packet *p;
    fleet_status status = fl_msg_end(w, true, &p);

    if (status != FLEET_OK) {
        fail_with(c, status);
        return;
    }
    c->host.send(c->host.arg, socket, p);
    fl_packet_drop(p);
}

/* Silence is counted from a question on: a server that is asked nothing says
 * nothing. */
static void note_question(fl_feed_client *c, int server, int64_t now_ms)
{
    if (c->server[server].owes_ms < 0)
        c->server[server].owes_ms = fl_awake_at(&c->awake, now_ms);
}

static void say_hello(fl_feed_client *c, int server, int64_t now_ms)
{
    fl_feed_server *s = &c->server[server];
    fl_msg_head head = head_of(c, fl_msg_job(c->o.job, 0), 0, 0);
    fl_msg_writer w;

    s->request = head.request;
    s->hello_ms = now_ms + AGAIN_MS;
    note_question(c, server, now_ms);
    fl_msg_begin(&w, c->o.pool, &head);
    fl_msg_text(&w, FL_SECTION_HELLO, c->o.job);
    send_to(c, server, &w);
}

/* One that is asked again has the number of before: whichever answer comes is
 * of the same position. */
static void ask_lane(fl_feed_client *c, int lane, int64_t now_ms)
{
    fl_feed_lane *l = &c->lane[lane];
    const fl_feed_server *s = &c->server[l->server];
    fl_msg_head head = head_of(c, s->job, s->peer, s->generation);
    fl_msg_writer w;
    void *bytes;

    if (l->asks)
        head.request = l->request;
    l->request = head.request;
    l->asks = true;
    l->sent_ms = now_ms;
    note_question(c, l->server, now_ms);
    fl_msg_begin(&w, c->o.pool, &head);
    fl_msg_section(&w, FL_SECTION_FEED, 0);
    bytes = fl_msg_column(&w, FL_COLUMN_BYTES, sizeof l->position);
    if (bytes)
        memcpy(bytes, &l->position, sizeof l->position);
    send_to(c, c->o.n_server + lane, &w);
}

/* --- servers -------------------------------------------------------------- */

static bool knows_all(const fl_feed_client *c)
{
    for (int i = 0; i < c->o.n_server; i++)
        if (c->server[i].n_lane == 0)
            return false;
    return true;
}

/* All servers have been known once: how many lanes there are is sure. An offset
 * of another number of them is of no use. */
static fleet_status make_lanes(fl_feed_client *c)
{
    int n_lane[FL_MOST_SERVER], n = 0;

    for (int i = 0; i < c->o.n_server; i++) {
        c->server[i].first = n;
        n_lane[i] = c->server[i].n_lane;
        n += n_lane[i];
    }
    FL_TRY(FL_NEW(&c->lane, (size_t)n * sizeof *c->lane));
    for (int i = 0; i < c->o.n_server; i++)
        for (int j = 0; j < n_lane[i]; j++)
            c->lane[c->server[i].first + j].server = i;
    for (int i = 0; i < n && c->n_resumed == n; i++)
        c->lane[i].position = c->resumed[i];
    fl_bucket_map_begin(&c->map, c->o.n_server, n_lane);
    c->n_lane = n;
    return FLEET_OK;
}

static fleet_status connect_lane(fl_feed_client *c, int server, int number,
                                 const fl_frame *f)
{
    char *text = fl_strndup(f->data ? f->data : "", f->size);
    fl_hello_lane lane;
    fleet_status status;

    if (!text)
        return FLEET_ENOMEM;
    status = fl_hello_read_lane(c->o.address[server], number, text,
                                c->o.locality, c->o.tcp_only, &lane);
    fl_free(text);
    FL_TRY(status);
    return c->host.connect(c->host.arg,
                           c->o.n_server + c->server[server].first + number,
                           lane.address, server);
}

/* The answer to a hello, from its packet: the addresses of lanes, which are
 * connected once the numbers of all lanes are known. */
static fleet_status connect_server(fl_feed_client *c, int server)
{
    const fl_msg *m = &c->msg;

    for (int i = 0; i < c->server[server].n_lane; i++)
        FL_TRY(connect_lane(c, server, i, &m->column[i][FL_AT_BYTES]));
    return FLEET_OK;
}

static fleet_status check_server(fl_feed_client *c, int server)
{
    const fl_msg *m = &c->msg;
    fl_feed_server *s = &c->server[server];
    int n = m->head.n_section - 1;
    char *text;
    fleet_status status;

    if (n < 1 || n > FL_MOST_LANE || m->section[n].op != FL_SECTION_TEXT)
        return fl_fail(FLEET_EFORMAT, "server %d at %s has no lanes", server,
                       fl_address_text(c->o.address[server]));
    if (m->head.step != (uint64_t)server) /* keys would be another lane's */
        return fl_fail(FLEET_EINVAL,
                       "%s is server %llu of the job, and the feed was given "
                       "it as server %d",
                       fl_address_text(c->o.address[server]),
                       (unsigned long long)m->head.step, server);
    if (c->n_lane > 0 && n != s->n_lane)
        return fl_fail(FLEET_EUNSUPPORTED,
                       "server %d at %s has %d lanes now, and had %d: open the "
                       "feed anew",
                       server, fl_address_text(c->o.address[server]), n,
                       s->n_lane);
    text = fl_msg_get_text(m, FL_SECTION_TEXT);
    if (!text)
        return FLEET_ENOMEM;
    status = fl_feed_read_items(c, text);
    fl_free(text);
    s->n_lane = n;
    return status;
}

/* Lanes are numbered through all servers: the first time all of
 * them are asked once more when the last one has come. */
static fleet_status enter_server(fl_feed_client *c, int server, int64_t now_ms)
{
    fl_feed_server *s = &c->server[server];

    FL_TRY(check_server(c, server));
    if (c->n_lane == 0 && knows_all(c)) {
        FL_TRY(make_lanes(c));
        for (int i = 0; i < c->o.n_server; i++)
            if (i != server)
                say_hello(c, i, now_ms);
    }
    if (c->n_lane == 0)
        return FLEET_OK;
    FL_TRY(connect_server(c, server));
    s->job = c->msg.head.job;
    s->peer = c->msg.head.peer;
    s->generation = c->msg.head.generation;
    s->known = true;
    for (int i = s->first; i < s->first + s->n_lane; i++)
        c->lane[i].asks = false;
    return FLEET_OK;
}

static void forget_server(fl_feed_client *c, int server)
{
    c->server[server].known = false;
    c->server[server].hello_ms = 0; /* now */
}

static void take_hello(fl_feed_client *c, int server, int64_t now_ms)
{
    fl_feed_server *s = &c->server[server];
    fleet_status status = FLEET_OK;

    if (s->known || c->msg.head.request != s->request)
        return;
    if (c->msg.head.status == FL_ANSWER_COMING)
        s->hello_ms = now_ms + COMING_MS;
    else if (c->msg.head.status == FL_ANSWER_OK)
        status = enter_server(c, server, now_ms);
    if (status != FLEET_OK)
        fail_with(c, status);
}

/* --- answers -------------------------------------------------------------- */

static void take_answer(fl_feed_client *c, int lane, fl_packet *p)
{
    fl_feed_lane *l = &c->lane[lane];

    if (!l->asks || c->msg.head.request != l->request)
        return;
    if (c->msg.head.status == FL_ANSWER_FENCED)
        forget_server(c, l->server);
    if (c->msg.head.status != FL_ANSWER_OK)
        return;
    if (fl_feed_check_answer(c) != FLEET_OK) {
        fail_with(c, FLEET_EFORMAT);
        return;
    }
    l->asks = false;
    l->packet = fl_packet_keep(p);
}

/* In the words of the server. */
static void take_refusal(fl_feed_client *c, int server)
{
    char *why = fl_msg_get_text(&c->msg, FL_SECTION_TEXT);

    fail_with(c, fl_fail(fl_msg_code(c->msg.head.step, FLEET_EPEER),
                         "server %d at %s: %.700s", server,
                         fl_address_text(c->o.address[server]),
                         why ? why : "no reason"));
    fl_free(why);
}

static int server_of(const fl_feed_client *c, int socket)
{
    return socket < c->o.n_server ? socket
                                  : c->lane[socket - c->o.n_server].server;
}

void fl_feed_client_receive(fl_feed_client *c, int socket, fl_packet *p,
                            int64_t now_ms)
{
    const fl_msg_head *head = &c->msg.head;
    int server = server_of(c, socket);

    if (fl_msg_decode(p, &c->msg) != FLEET_OK)
        return; /* it is lost, and asked for again */
    c->server[server].owes_ms = -1;
    if (head->kind == FL_MSG_ABORT ||
        (head->kind == FL_MSG_ANSWER && head->status == FL_ANSWER_REFUSED))
        take_refusal(c, server);
    else if (head->kind == FL_MSG_ANSWER && socket < c->o.n_server)
        take_hello(c, server, now_ms);
    else if (head->kind == FL_MSG_ANSWER)
        take_answer(c, socket - c->o.n_server, p);
}

/* --- time ----------------------------------------------------------------- */

static int64_t silence_of(fl_feed_client *c, int server, int64_t now_ms)
{
    int64_t awake_ms = fl_awake_at(&c->awake, now_ms);

    return c->server[server].owes_ms < 0 ? 0
                                         : awake_ms - c->server[server].owes_ms;
}

/* Have these lanes, which are known, said that it is over? */
static bool are_over(const fl_feed_client *c, int first, int n)
{
    bool over = c->n_lane > 0;

    for (int i = first; over && i < first + n; i++)
        over = c->lane[i].over;
    return over;
}

static bool has_ended(const fl_feed_client *c, int server)
{
    return are_over(c, c->server[server].first, c->server[server].n_lane);
}

static bool is_missed(fl_feed_client *c, int server, int64_t now_ms)
{
    return silence_of(c, server, now_ms) > c->o.peer_ms &&
           !has_ended(c, server);
}

/* When it is to be asked; -1: not now. */
static int64_t due_of(const fl_feed_client *c, const fl_feed_lane *l)
{
    if (!c->server[l->server].known || l->packet || l->over)
        return -1;
    return l->asks ? l->sent_ms + AGAIN_MS : l->due_ms;
}

static int64_t due_hello(const fl_feed_client *c, int server)
{
    const fl_feed_server *s = &c->server[server];

    if (s->known || has_ended(c, server) || (c->n_lane == 0 && s->n_lane > 0))
        return -1;
    return s->hello_ms;
}

static void note_due(int64_t due, int64_t now_ms, int *wait)
{
    if (due >= 0 && due - now_ms < *wait)
        *wait = due > now_ms ? (int)(due - now_ms) : 0;
}

int fl_feed_client_tick(fl_feed_client *c, int64_t now_ms)
{
    int64_t look = c->awake.most_ms / 2; /* at the awake clock */
    int wait = look < AGAIN_MS ? (int)look : AGAIN_MS;

    fl_awake_at(&c->awake, now_ms);
    if (c->error.code != FLEET_OK)
        return wait;
    for (int i = 0; i < c->o.n_server; i++) {
        /* another process may have come to its address */
        if (c->server[i].known && is_missed(c, i, now_ms))
            forget_server(c, i);
        if (due_hello(c, i) >= 0 && due_hello(c, i) <= now_ms)
            say_hello(c, i, now_ms);
        note_due(due_hello(c, i), now_ms, &wait);
    }
    for (int i = 0; i < c->n_lane; i++) {
        int64_t due = due_of(c, &c->lane[i]);

        if (due >= 0 && due <= now_ms)
            ask_lane(c, i, now_ms);
        note_due(due_of(c, &c->lane[i]), now_ms, &wait);
    }
    return wait;
}

/* --- batches -------------------------------------------------------------- */

static bool hand_out(fl_feed_client *c, int lane, fleet_feed_batch *batch,
                     bool *walked, int64_t now_ms)
{
    fl_feed_lane *l = &c->lane[lane];
    fleet_status status = fl_msg_decode(l->packet, &c->msg);
    fl_feed_answer answer;

    if (status == FLEET_OK)
        status = fl_feed_read_batch(c, lane, batch);
    if (status != FLEET_OK) {
        fail_with(c, status);
        return false;
    }
    answer = fl_feed_answer_of(&c->msg);
    *walked = batch->complete && (batch->begins || l->position.table > 0);
    l->position = answer.position;
    l->over = answer.flags & FL_FLAG_OVER;
    l->due_ms =
        answer.flags & FL_FLAG_MORE ? now_ms : l->sent_ms + c->o.interval_ms;
    fl_packet_drop(l->packet);
    l->packet = NULL;
    c->next = (lane + 1) % c->n_lane;
    return true;
}

/* A caller that asks for more has done with the last batch of a lane. The lane
 * ends when it hears so, and not before: another process may have to hear of
 * that batch. */
static void confirm_ends(fl_feed_client *c, int64_t now_ms)
{
    for (int i = 0; i < c->n_lane; i++) {
        fl_feed_lane *l = &c->lane[i];

        if (!l->over || l->confirmed || !c->server[l->server].known)
            continue;
        ask_lane(c, i, now_ms);
        l->asks = false; /* what is answered is of no interest */
        l->confirmed = true;
    }
}

bool fl_feed_client_next(fl_feed_client *c, fleet_feed_batch *batch,
                         bool *walked, int64_t now_ms)
{
    confirm_ends(c, now_ms);
    for (int i = 0; i < c->n_lane; i++) {
        int lane = (c->next + i) % c->n_lane;

        if (c->lane[lane].packet)
            return hand_out(c, lane, batch, walked, now_ms);
    }
    return false;
}

bool fl_feed_client_is_over(const fl_feed_client *c)
{
    return are_over(c, 0, c->n_lane);
}

fleet_status fl_feed_client_status(fl_feed_client *c, int64_t now_ms)
{
    FL_TRY(fl_error_raise(&c->error));
    for (int i = 0; i < c->o.n_server; i++)
        if (is_missed(c, i, now_ms))
            return fl_fail(FLEET_ETIMEDOUT,
                           "server %d at %s was not heard of for %.1f s: is it "
                           "running, is that its address, and are these the "
                           "keys of its job?",
                           i, fl_address_text(c->o.address[i]),
                           (double)silence_of(c, i, now_ms) / 1000);
    return FLEET_OK;
}

bool fl_feed_client_tells(const fl_feed_client *c, const char *table)
{
    for (int i = 0; i < c->n_table; i++)
        if (c->table[i].n > 0 && strcmp(c->table[i].name, table) == 0)
            return true;
    return false;
}

int fl_feed_client_lanes(const fl_feed_client *c)
{
    return c->n_lane > 0 ? c->n_lane : -1;
}

int fl_feed_client_lane_of(const fl_feed_client *c, uint64_t key)
{
    uint16_t lane;

    if (c->n_lane == 0)
        return -1;
    lane = c->map.lane[fl_bucket_of(fl_mix(key))];
    return c->server[lane / FL_MOST_LANE].first + lane % FL_MOST_LANE;
}

/* --- life ----------------------------------------------------------------- */

fleet_status fl_feed_client_create(fl_feed_client **client,
                                   const fl_feed_options *o,
                                   const fl_feed_host *host, int64_t now_ms)
{
    fl_feed_client *c;

    *client = NULL;
    FL_TRY(FL_NEW(&c, sizeof *c));
    c->o = *o;
    c->host = *host;
    c->awake = fl_awake_from(now_ms, fl_awake_step(o->peer_ms));
    if (FL_NEW(&c->server, (size_t)o->n_server * sizeof *c->server) !=
        FLEET_OK) {
        fl_free(c);
        return FLEET_ENOMEM;
    }
    for (int i = 0; i < o->n_server; i++)
        c->server[i].owes_ms = -1;
    *client = c;
    return FLEET_OK;
}

static void free_items(fl_feed_item *item, int n)
{
    for (int i = 0; i < n; i++)
        fl_free(item[i].name);
    fl_free(item);
}

void fl_feed_client_destroy(fl_feed_client *c)
{
    if (!c)
        return;
    for (int i = 0; i < c->n_lane; i++)
        fl_packet_drop(c->lane[i].packet);
    free_items(c->table, c->n_table);
    free_items(c->param, c->n_param);
    fl_free(c->text);
    fl_free(c->lane);
    fl_free(c->server);
    fl_free(c->resumed);
    fl_free(c->part);
    fl_free(c->copy);
    fl_free(c);
}
