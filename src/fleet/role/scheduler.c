/* scheduler.c - a socket and time for scheduler_table.c. */
#include "fleet/role/scheduler.h"

#include <stdio.h>
#include <string.h>

#include <fleet/init.h>

#include "base/clock.h"
#include "base/memory.h"
#include "net/roster_link.h"

enum {
    MOST_LINES = 100, /* about refusals */
    MOST_TURN = 1000, /* messages, before it looks at its deadlines */
    LOOK_MS = 100,
    LINGER_MS = 2000 /* of the last words */
};

struct fl_scheduler {
    fl_scheduler_options o;
    fl_scheduler_env env; /* o.env */
    fl_roster_link link;
    fl_scheduler_table table;
    fl_peer *peer; /* of the table's processes, by place */
    fl_awake awake;
    int n_refused;
};

void fl_scheduler_introduce(const fl_scheduler_options *o,
                            fl_roster_message *own)
{
    char number[16];

    *own = (fl_roster_message){.kind = FL_ROSTER_JOIN, .rank = -1, .rest = ""};
    snprintf(own->id, sizeof own->id, "%s", o->env->id);
    fl_roster_message_set(own->field[FL_ROSTER_VERSION], fleet_version());
    fl_roster_message_set(own->field[FL_ROSTER_JOB], o->job);
    snprintf(number, sizeof number, "%d", o->env->num[FL_SCHEDULED_SERVER]);
    fl_roster_message_set(own->field[FL_ROSTER_SERVERS], number);
    snprintf(number, sizeof number, "%d", o->env->num[FL_SCHEDULED_WORKER]);
    fl_roster_message_set(own->field[FL_ROSTER_WORKERS], number);
}

static int64_t now_ms(fl_scheduler *s)
{
    return fl_awake_at(&s->awake, fl_now_ms());
}

static fleet_status open_all(fl_scheduler *s)
{
    const fl_scheduler_options *o = &s->o;
    fl_roster_message own;
    fl_address numeric;

    FL_TRY(fl_address_resolve(o->env->address, numeric));
    if (!o->keys && !o->insecure)
        FL_TRY(fl_address_check_keyless("the scheduler", numeric, -1));
    fl_scheduler_introduce(o, &own);
    fl_roster_message_set(own.host, numeric);
    s->peer = fl_alloc_array((size_t)(o->env->num[0] + o->env->num[1]),
                             sizeof *s->peer);
    if (!s->peer)
        return FLEET_ENOMEM;
    FL_TRY(fl_scheduler_table_open(&s->table, &own, o->env->num, now_ms(s),
                                   o->connect_ms, o->peer_ms));
    if (o->restart_ms > s->table.silent_ms)
        s->table.silent_ms = o->restart_ms;
    return fl_roster_link_listen(&s->link, numeric, o->keys, -1, true);
}

fleet_status fl_scheduler_open(fl_scheduler **scheduler,
                               const fl_scheduler_options *o)
{
    fleet_status status;
    fl_scheduler *s;

    *scheduler = NULL;
    FL_TRY(FL_NEW(&s, sizeof *s));
    s->o = *o;
    s->env = *o->env;
    s->o.env = &s->env;
    s->awake = fl_awake_from(fl_now_ms(), fl_awake_step(o->peer_ms));
    status = open_all(s);
    if (status == FLEET_OK) {
        *scheduler = s;
        return FLEET_OK;
    }
    fl_scheduler_close(s);
    return fl_fail_in(status, "the scheduler (MS_SCHED_HOST, MS_SCHED_PORT)");
}

void fl_scheduler_close(fl_scheduler *s)
{
    if (!s)
        return;
    fl_roster_link_close(&s->link, s->table.n > 0 ? LINGER_MS : 0);
    fl_scheduler_table_close(&s->table);
    fl_free(s->peer);
    fl_free(s);
}

/* --- serving -------------------------------------------------------------- */

static fleet_status answer_process(fl_scheduler *s, int place,
                                   const fl_peer *to)
{
    fl_roster_message answer;
    fl_text list = {0};
    fleet_status status =
        fl_scheduler_table_answer(&s->table, place, &answer, &list);

    if (status == FLEET_OK)
        status = fl_roster_link_send(&s->link, to, &answer);
    fl_text_done(&list);
    return status;
}

/* Of the key that a message came with, which the link has let in. */
static int role_of_key(const fl_scheduler *s, const fl_peer *from)
{
    if (!s->link.guard)
        return -1;
    return from->sender >= FL_GUARD_SERVER ? FL_SCHEDULED_SERVER
                                           : FL_SCHEDULED_WORKER;
}

static fleet_status take_message(fl_scheduler *s, const fl_roster_message *m,
                                 const fl_peer *from)
{
    fl_scheduler_table *t = &s->table;
    const fl_scheduler_phase before = t->phase;
    int place;

    if (!fl_roster_link_lets_in(&s->link, from))
        return FLEET_OK;
    place = fl_scheduler_table_take(t, m, role_of_key(s, from), now_ms(s));
    if (m->kind == FL_ROSTER_READY && t->phase != before) { /* other places */
        memset(s->peer, 0,
               (size_t)(s->env.num[0] + s->env.num[1]) * sizeof *s->peer);
        FL_WARN(s->o.log,
                "scheduler: learnt the job \"%s\" from the %s, which is in "
                "it: this scheduler was started again",
                s->o.job, t->learnt);
    }
    if (place >= 0)
        s->peer[place] = *from;
    else if (place == FL_SCHEDULER_REFUSES && s->n_refused++ < MOST_LINES)
        FL_WARN(s->o.log, "scheduler: refused a process: %s", t->refused);
    return answer_process(s, place, from);
}

static fleet_status take_messages(fl_scheduler *s)
{
    fl_roster_message m;
    fl_peer from;
    char *text;

    for (int i = 0; i < MOST_TURN; i++) {
        fleet_status status =
            fl_roster_link_receive(&s->link, &from, &m, &text);

        if (status != FLEET_OK || !text)
            return status;
        status = take_message(s, &m, &from);
        fl_free(text);
        FL_TRY(status);
    }
    return FLEET_OK;
}

/* What has changed none has to ask for. */
static void answer_all(fl_scheduler *s)
{
    for (int i = 0; i < s->table.n; i++)
        if (s->peer[i].size > 0)
            answer_process(s, i, &s->peer[i]);
}

static void log_phase(const fl_scheduler *s)
{
    const fl_scheduler_table *t = &s->table;

    if (t->phase == FL_SCHEDULER_STARTED)
        FL_INFO(
            s->o.log, "scheduler: job \"%s\" has its %d servers and %d workers",
            s->o.job, t->num[FL_SCHEDULED_SERVER], t->num[FL_SCHEDULED_WORKER]);
}

/* Why it ends, if not all have said that they leave. */
static void log_silence(const fl_scheduler *s)
{
    char first[FL_ROSTER_TEXT + 16];
    int n = fl_scheduler_table_missing(&s->table, first);

    if (n > 0)
        FL_WARN(s->o.log,
                "scheduler: job \"%s\" is over: %d of its processes, the %s "
                "first, have said nothing for %lld ms, and all others have "
                "left",
                s->o.job, n, first, (long long)s->table.silent_ms);
}

fleet_status fl_scheduler_run(fl_scheduler *s, bool (*stopped)(void *arg),
                              void *arg)
{
    fl_scheduler_table *t = &s->table;

    while (!stopped(arg)) {
        fl_scheduler_phase before = t->phase;

        if (fl_scheduler_table_is_over(t, now_ms(s))) {
            log_silence(s);
            break;
        }
        FL_TRY(fl_roster_link_wait(&s->link, LOOK_MS));
        FL_TRY(take_messages(s));
        fl_scheduler_table_tick(t, now_ms(s));
        if (t->phase == before)
            continue;
        answer_all(s);
        log_phase(s);
        if (t->phase == FL_SCHEDULER_FAILED)
            return fl_fail(FLEET_EPEER, "scheduler: %s", t->words);
    }
    return FLEET_OK;
}
