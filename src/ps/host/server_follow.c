/* server_follow.c - a server whose lanes follow the lanes of another one: the
 * way to their leaders, and what comes from them. */
#include "base/clock.h"
#include "base/memory.h"
#include "ps/host/server_internal.h"
#include "ps/worker/handshake.h"

/* The processes of both servers beside this one come to it: one follows its
 * lanes, and one asks where copies are. To copies comes the process of their
 * server, when it is started again. */
void fl_server_let_in(fl_server *s)
{
    int n = s->o.n_server;

    if (s->guard && !s->o.no_move)
        fl_guard_let_in_servers(s->guard);
    else if (s->guard && s->o.replica) {
        fl_guard_let_in(s->guard, (s->o.index + 1) % n);
        fl_guard_let_in(s->guard, (s->o.index + n - 1) % n);
    } else if (s->guard && s->o.follows) {
        fl_guard_let_in(s->guard, s->o.index);
    }
}

/* In whose process the lanes are that it follows: that server's own, or the
 * next one's. */
static int leaders_process(const fl_server *s)
{
    return s->o.seeks_copies ? (s->o.index + 1) % s->o.n_server : s->o.index;
}

/* The first lane's address is the server's; it tells the addresses of all. */
fleet_status fl_server_find_leader(fl_server *s)
{
    if (s->o.host)
        return fl_guest_find_leader(s);
    return fl_socket_connect_to(&s->runner[0].leader, s->o.follows, s->o.keys,
                                leaders_process(s));
}

/* What its leader begins with it begins with, too. */
void fl_server_begin_follow(fl_server *s)
{
    for (int i = 0; i < s->n_runner; i++)
        fl_lane_begin_follow(s->runner[i].lane, s->load, fl_now_ms());
}

void fl_runner_ask_leader(void *arg, fl_packet *p)
{
    fl_lane_runner *r = arg;

    if (r->leader)
        fl_socket_send(r->leader, NULL, p); /* a lost one is sent again */
}

/* By a Unix socket where both are of one machine, as workers come. */
static fleet_status connect_leader(fl_lane_runner *r)
{
    const fl_server *s = r->server;
    fl_hello_lane at = {0};
    char locality[160];
    fl_socket *leader;

    fl_locality_text(locality);
    FL_TRY(fl_hello_read_lane(s->o.follows, s->o.seeks_copies ? 1 : r->number,
                              s->leader_text[r->number], locality,
                              s->o.tcp_only, &at));
    FL_TRY(fl_socket_connect_to(&leader, at.address, s->o.keys,
                                leaders_process(s)));
    fl_socket_close(r->leader, 0);
    r->leader = leader;
    r->found = true;
    return FLEET_OK;
}

/* Each lane follows that of its number. */
static fleet_status read_leaders(fl_server *s, const fl_msg *msg)
{
    if (msg->head.n_section != s->o.n_lane)
        return fl_fail(FLEET_EINVAL,
                       "it has %d lanes, and that server %d: with "
                       "strategy.replicas all servers need the same number "
                       "(FLEET_SERVER_LANES)",
                       s->o.n_lane, msg->head.n_section);
    for (int i = 0; i < s->o.n_lane; i++) {
        const fl_frame *f = &msg->column[i][FL_AT_BYTES];

        s->leader_text[i] = fl_strndup(f->data ? f->data : "", f->size);
        if (!s->leader_text[i])
            return FLEET_ENOMEM;
    }
    atomic_store(&s->knows_leaders, true);
    fl_server_ring(s);
    return FLEET_OK;
}

/* The first lane's leader says where all leaders are. Then no message is looked
 * at for that any more. */
static fleet_status look_for_leaders(fl_lane_runner *r, const fl_packet *p)
{
    static _Thread_local fl_msg msg;

    if (r->found || r->number > 0 || fl_msg_decode(p, &msg) != FLEET_OK ||
        msg.head.kind != FL_MSG_ANSWER || msg.head.n_section == 0 ||
        msg.section[0].op != FL_SECTION_HELLO)
        return FLEET_OK;
    FL_TRY(read_leaders(r->server, &msg));
    return connect_leader(r);
}

/* Where copies are a server says that is none of them. */
static void take_answer(fl_lane_runner *r, fl_packet *p)
{
    bool seeks = r->server->o.seeks_copies && !r->found;
    fleet_status status = look_for_leaders(r, p);
    fl_error error;

    fl_error_take(&error, status);
    if (!seeks)
        fl_lane_follow(r->lane, p, fl_now_ms());
    else if (r->found)
        fl_lane_found_leader(r->lane, fl_now_ms());
    if (fl_error_raise(&error) != FLEET_OK)
        fl_lane_cannot_follow(r->lane);
}

/* Once, and by any of its lanes. */
static void look_whether_late(const fl_lane_runner *r)
{
    fl_server *s = r->server;

    if (fl_lane_is_late(r->lane) && !atomic_exchange(&s->is_late, true) &&
        s->o.on_late)
        s->o.on_late(s->o.on_late_arg);
}

void fl_runner_hear_leader(fl_lane_runner *r)
{
    const fl_server *s = r->server;
    fl_packet *p;

    if (!s->o.follows)
        return;
    if (!r->found && r->number > 0 && atomic_load(&s->knows_leaders)) {
        if (connect_leader(r) == FLEET_OK)
            fl_lane_found_leader(r->lane, fl_now_ms());
        else
            fl_lane_abort(r->lane, fl_last_code(), fleet_last_error());
    }
    while (r->leader && fl_socket_receive(r->leader, NULL, &p) == FLEET_OK &&
           p) {
        take_answer(r, p);
        fl_packet_drop(p);
    }
    look_whether_late(r);
}

bool fl_server_was_fenced(const fl_server *s)
{
    for (int i = 0; i < s->n_runner; i++)
        if (!fl_lane_was_fenced(s->runner[i].lane))
            return false;
    return true;
}
