/* scheduler_table.c - processes come, are compared, get numbers, come again. */
#include "fleet/role/scheduler_table.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"

static const char *const role_words[] = {"server", "worker"};

static const char *const field_words[] = {
#define FIELD(NAME, flag, variable) variable,
    FL_ROSTER_FIELDS(FIELD)
#undef FIELD
};

fleet_status fl_scheduler_table_open(fl_scheduler_table *t,
                                     const fl_roster_message *own,
                                     const int num[FL_N_SCHEDULED],
                                     int64_t now_ms, int64_t connect_ms,
                                     int64_t peer_ms)
{
    *t = (fl_scheduler_table){.own = *own,
                              .connect_ms = connect_ms,
                              .deadline_ms = now_ms + connect_ms,
                              .silent_ms = connect_ms,
                              .peer_ms = peer_ms};
    memcpy(t->num, num, sizeof t->num);
    t->process = fl_alloc_array((size_t)(num[0] + num[1]), sizeof *t->process);
    return t->process ? FLEET_OK : FLEET_ENOMEM;
}

void fl_scheduler_table_close(fl_scheduler_table *t)
{
    fl_free(t->process);
    *t = (fl_scheduler_table){0};
}

static void __attribute__((format(printf, 2, 3)))
fail_table(fl_scheduler_table *t, const char *format, ...)
{
    va_list args;

    if (t->phase == FL_SCHEDULER_FAILED)
        return;
    va_start(args, format);
    vsnprintf(t->words, sizeof t->words, format, args);
    va_end(args);
    t->phase = FL_SCHEDULER_FAILED;
}

static int __attribute__((format(printf, 2, 3)))
refuse_process(fl_scheduler_table *t, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(t->refused, sizeof t->refused, format, args);
    va_end(args);
    return FL_SCHEDULER_REFUSES;
}

/* --- texts ---------------------------------------------------------------- */

static int find_role(const char *word)
{
    for (int i = 0; i < FL_N_SCHEDULED; i++)
        if (strcmp(role_words[i], word) == 0)
            return i;
    return -1;
}

void fl_scheduled_write_join(int role, const char *endpoint,
                             char to[FL_ROSTER_TEXT + 16])
{
    snprintf(to, FL_ROSTER_TEXT + 16, "%s %s", role_words[role], endpoint);
}

static bool read_join(const char *rest, int *role,
                      char endpoint[FL_ROSTER_TEXT])
{
    char word[16];

    if (sscanf(rest, "%15s %127s", word, endpoint) != 2)
        return false;
    *role = find_role(word);
    return *role >= 0;
}

bool fl_scheduled_read(char **rest, fl_scheduled *p)
{
    char word[16], *line = *rest, *end = strchr(line, '\n');

    *p = (fl_scheduled){.rank = -1, .rival_ms = -1};
    if (!end)
        return false;
    *end = 0;
    *rest = end + 1;
    if (sscanf(line, "%15s %d %63s %127s", word, &p->rank, p->id,
               p->endpoint) != 4)
        return false;
    p->role = find_role(word);
    return p->role >= 0 && p->rank >= 0;
}

static fleet_status list_processes(const fl_scheduler_table *t, fl_text *list)
{
    for (int i = 0; i < t->n; i++)
        fl_text_add(list, "%s %d %s %s\n", role_words[t->process[i].role],
                    t->process[i].rank, t->process[i].id,
                    t->process[i].endpoint);
    return list->status;
}

/* --- what comes ----------------------------------------------------------- */

static int find_process(const fl_scheduler_table *t, const char *id)
{
    for (int i = 0; i < t->n; i++)
        if (strcmp(t->process[i].id, id) == 0)
            return i;
    return -1;
}

static int count_role(const fl_scheduler_table *t, int role)
{
    int n = 0;

    for (int i = 0; i < t->n; i++)
        n += t->process[i].role == role;
    return n;
}

static bool differs(fl_scheduler_table *t, const fl_roster_message *m)
{
    for (int i = 0; i < FL_N_ROSTER_FIELD; i++)
        if (strcmp(m->field[i], t->own.field[i]) != 0) {
            refuse_process(
                t,
                "%s is \"%s\" in a process of %s, but \"%s\" in the "
                "scheduler: expected the same in all processes%s",
                field_words[i], m->field[i], m->host, t->own.field[i],
                i == FL_ROSTER_JOB ? "; another job needs another MS_SCHED_PORT"
                                   : "");
            return true;
        }
    return false;
}

/* By address, so that a job that is started again has the same numbers: that of
 * fewer letters first, as 10.0.0.2 comes before 10.0.0.10. */
static int compare_texts(const char *a, const char *b)
{
    const size_t n = strlen(a), m = strlen(b);

    return n != m ? (n < m ? -1 : 1) : strcmp(a, b);
}

static size_t host_length(const char *endpoint)
{
    const char *colon = strrchr(endpoint, ':');

    return colon ? (size_t)(colon - endpoint) : strlen(endpoint);
}

static int compare_processes(const fl_scheduled *a, const fl_scheduled *b)
{
    char host[2][FL_ROSTER_TEXT];
    int order;

    snprintf(host[0], sizeof host[0], "%.*s", (int)host_length(a->endpoint),
             a->endpoint);
    snprintf(host[1], sizeof host[1], "%.*s", (int)host_length(b->endpoint),
             b->endpoint);
    order = compare_texts(host[0], host[1]);
    return order ? order : compare_texts(a->id, b->id);
}

static void give_ranks(fl_scheduler_table *t)
{
    for (int i = 0; i < t->n; i++) {
        fl_scheduled *p = &t->process[i];

        p->rank = 0;
        for (int k = 0; k < t->n; k++)
            p->rank += t->process[k].role == p->role &&
                       compare_processes(&t->process[k], p) < 0;
    }
    t->phase = FL_SCHEDULER_STARTED;
}

static int add_process(fl_scheduler_table *t, const fl_roster_message *m,
                       int role, const char *endpoint, int64_t now_ms)
{
    fl_scheduled *p;

    if (differs(t, m))
        return FL_SCHEDULER_REFUSES;
    if (count_role(t, role) == t->num[role] || t->phase != FL_SCHEDULER_COMING)
        return refuse_process(
            t,
            "a %s of %s is one too many: job \"%s\" has its %d %ss (MS_%s_NUM) "
            "already%s%s%s; a process that is started again says by "
            "MS_NODE_ID, as before, which one it is",
            role_words[role], m->host, t->own.field[FL_ROSTER_JOB],
            t->num[role], role_words[role], role ? "WORKER" : "SERVER",
            *t->learnt ? ", as the scheduler has learnt from the " : "",
            t->learnt,
            *t->learnt ? " (another job needs another PADDLE_JOB_ID)" : "");
    p = &t->process[t->n++];
    *p = (fl_scheduled){
        .role = role, .rank = -1, .rival_ms = -1, .heard_ms = now_ms};
    snprintf(p->id, sizeof p->id, "%s", m->id);
    snprintf(p->endpoint, sizeof p->endpoint, "%s", endpoint);
    if (t->n == t->num[0] + t->num[1])
        give_ranks(t);
    return t->n - 1;
}

/* Before the job has begun, one of a known id at another endpoint: is the
 * process at the first one dead, which then is silent, or are they two? */
static bool is_known_dead(const fl_scheduler_table *t, fl_scheduled *p,
                          int64_t now_ms)
{
    if (p->rival_ms < 0)
        p->rival_ms = now_ms;
    return now_ms - p->heard_ms > t->peer_ms / 4;
}

/* One of a known id: the same process, or one that was started again. */
static int join_again(fl_scheduler_table *t, int place, int role,
                      const fl_roster_message *m, const char *endpoint,
                      int64_t now_ms)
{
    fl_scheduled *p = &t->process[place];
    bool moves =
        t->phase == FL_SCHEDULER_COMING && strcmp(p->endpoint, endpoint) != 0;

    if (differs(t, m))
        return FL_SCHEDULER_REFUSES;
    if (p->role == role && moves && is_known_dead(t, p, now_ms)) {
        snprintf(p->endpoint, sizeof p->endpoint, "%s", endpoint);
        p->rival_ms = -1;
        moves = false;
    }
    if (p->role != role || (moves && now_ms - p->rival_ms > t->peer_ms / 2))
        return refuse_process(t,
                              "MS_NODE_ID of a %s at %s is \"%s\", which is "
                              "that of the %s at %s: expected another one",
                              role_words[role], endpoint, p->id,
                              role_words[p->role], p->endpoint);
    if (moves)
        return FL_SCHEDULER_NOT_YET;
    p->heard_ms = now_ms;
    p->has_gone = false;
    return place;
}

/* -1: there are no keys. */
static bool has_other_key(fl_scheduler_table *t, const fl_roster_message *m,
                          int role, int key_role)
{
    if (key_role < 0 || key_role == role)
        return false;
    refuse_process(t,
                   "a process of %s says that it is a %s, with the key of a %s",
                   m->host, role_words[role], role_words[key_role]);
    return true;
}

static int take_join(fl_scheduler_table *t, const fl_roster_message *m,
                     int key_role, int64_t now_ms)
{
    char endpoint[FL_ROSTER_TEXT];
    int role, place = find_process(t, m->id);

    if (!read_join(m->rest, &role, endpoint))
        return refuse_process(t, "%s says neither server nor worker", m->host);
    if (has_other_key(t, m, role, key_role))
        return FL_SCHEDULER_REFUSES;
    return place < 0 ? add_process(t, m, role, endpoint, now_ms)
                     : join_again(t, place, role, m, endpoint, now_ms);
}

/* --- a scheduler that was started again ----------------------------------- */

/* All of the list, or none. */
static bool read_list(fl_scheduler_table *t, char *rest, int64_t now_ms)
{
    fl_scheduled p;
    int seen[FL_N_SCHEDULED] = {0};

    t->n = 0;
    while (t->n < t->num[0] + t->num[1] && fl_scheduled_read(&rest, &p)) {
        seen[p.role]++;
        p.heard_ms = now_ms;
        if (p.rank >= t->num[p.role] || seen[p.role] > t->num[p.role] ||
            find_process(t, p.id) >= 0)
            break;
        t->process[t->n++] = p;
    }
    return t->n == t->num[0] + t->num[1] && !*rest;
}

/* Processes that have come meanwhile ask again. */
static int learn(fl_scheduler_table *t, const fl_roster_message *m,
                 int key_role, int64_t now_ms)
{
    char *rest;
    int place;

    if (t->phase != FL_SCHEDULER_COMING)
        return refuse_process(t, "%s is none of this job", m->host);
    if (differs(t, m))
        return FL_SCHEDULER_REFUSES;
    rest = fl_strdup(m->rest);
    if (!rest || !read_list(t, rest, now_ms)) {
        t->n = 0;
        fl_free(rest);
        return refuse_process(t, "%s has no list of this job's processes",
                              m->host);
    }
    fl_free(rest);
    place = find_process(t, m->id);
    if (place < 0 || has_other_key(t, m, t->process[place].role, key_role)) {
        t->n = 0;
        return place < 0 ? refuse_process(t,
                                          "%s is not in its own list of "
                                          "this job's processes",
                                          m->host)
                         : FL_SCHEDULER_REFUSES;
    }
    snprintf(t->learnt, sizeof t->learnt, "%s at %s",
             role_words[t->process[place].role], t->process[place].endpoint);
    t->phase = FL_SCHEDULER_STARTED;
    return place;
}

int fl_scheduler_table_take(fl_scheduler_table *t, const fl_roster_message *m,
                            int key_role, int64_t now_ms)
{
    int place = find_process(t, m->id);

    if (m->kind == FL_ROSTER_JOIN)
        return take_join(t, m, key_role, now_ms);
    if (m->kind == FL_ROSTER_READY &&
        (place < 0 || t->phase == FL_SCHEDULER_COMING))
        place = learn(t, m, key_role, now_ms);
    else if (place < 0)
        return refuse_process(t, "%s has not joined the job", m->host);
    if (place < 0 || has_other_key(t, m, t->process[place].role, key_role))
        return FL_SCHEDULER_REFUSES;
    t->process[place].heard_ms = now_ms;
    t->process[place].has_gone = m->kind == FL_ROSTER_GONE;
    if (m->kind == FL_ROSTER_GONE && t->phase == FL_SCHEDULER_COMING)
        fail_table(t, "the %s at %s has ended before the job began: %.600s",
                   role_words[t->process[place].role],
                   t->process[place].endpoint, m->rest);
    return place;
}

/* --- what they hear ------------------------------------------------------- */

fleet_status fl_scheduler_table_answer(const fl_scheduler_table *t, int place,
                                       fl_roster_message *answer, fl_text *list)
{
    static const fl_roster_kind kinds[] = {FL_ROSTER_WAIT, FL_ROSTER_START,
                                           FL_ROSTER_FAILED};

    *answer = t->own;
    answer->kind = place == FL_SCHEDULER_REFUSES   ? FL_ROSTER_REFUSED
                   : place == FL_SCHEDULER_NOT_YET ? FL_ROSTER_WAIT
                                                   : kinds[t->phase];
    answer->rank = place < 0 ? -1 : t->process[place].rank;
    answer->rest = "";
    if (answer->kind == FL_ROSTER_REFUSED)
        answer->rest = t->refused;
    else if (answer->kind == FL_ROSTER_FAILED)
        answer->rest = t->words;
    else if (answer->kind == FL_ROSTER_START) {
        FL_TRY(list_processes(t, list));
        answer->rest = fl_text_chars(list);
    }
    return FLEET_OK;
}

/* --- deadlines ------------------------------------------------------------ */

static void fail_late(fl_scheduler_table *t)
{
    char who[FL_ROSTER_WORDS / 3] = "";
    size_t n = 0;

    for (int i = 0; i < t->n && n < sizeof who; i++)
        n += (size_t)snprintf(who + n, sizeof who - n, "%s%s %s", i ? ", " : "",
                              role_words[t->process[i].role],
                              t->process[i].endpoint);
    fail_table(t,
               "only %d of %d servers (MS_SERVER_NUM) and %d of %d workers "
               "(MS_WORKER_NUM) have come within %lld ms "
               "(FLEET_CONNECT_DEADLINE_MS)%s%s%s%.300s",
               count_role(t, FL_SCHEDULED_SERVER), t->num[FL_SCHEDULED_SERVER],
               count_role(t, FL_SCHEDULED_WORKER), t->num[FL_SCHEDULED_WORKER],
               (long long)t->connect_ms, *who ? ": " : "", who,
               *t->refused ? "; one was refused: " : "", t->refused);
}

void fl_scheduler_table_tick(fl_scheduler_table *t, int64_t now_ms)
{
    if (t->phase != FL_SCHEDULER_COMING)
        return;
    for (int i = 0; i < t->n; i++)
        if (now_ms - t->process[i].heard_ms > t->peer_ms)
            fail_table(t,
                       "the %s at %s came and has said nothing for %lld ms "
                       "(FLEET_PEER_DEADLINE_MS)",
                       role_words[t->process[i].role], t->process[i].endpoint,
                       (long long)t->peer_ms);
    if (now_ms > t->deadline_ms)
        fail_late(t);
}

bool fl_scheduler_table_is_over(const fl_scheduler_table *t, int64_t now_ms)
{
    bool over = true;

    for (int i = 0; i < t->n; i++)
        over = over && (t->process[i].has_gone ||
                        now_ms - t->process[i].heard_ms > t->silent_ms);
    return t->phase == FL_SCHEDULER_STARTED && over;
}

int fl_scheduler_table_missing(const fl_scheduler_table *t,
                               char first[FL_ROSTER_TEXT + 16])
{
    int n = 0;

    *first = 0;
    for (int i = 0; i < t->n; i++)
        if (!t->process[i].has_gone && n++ == 0)
            snprintf(first, FL_ROSTER_TEXT + 16, "%s at %s",
                     role_words[t->process[i].role], t->process[i].endpoint);
    return n;
}
