/* trail_read.c - a trail read: where the process before has come to. */
#include "ps/trail/trail_internal.h"

#include <string.h>

#include "base/memory.h"
#include "ps/journal/journal_reader.h"

/* --- forgotten ------------------------------------------------------------ */

static void forget_point(fl_trail *t)
{
    for (int i = 0; i < 2; i++) {
        fl_free(t->push[i].data);
        fl_free(t->call[i].data);
        t->push[i] = t->call[i] = (fl_trail_record){0};
    }
    t->from = (fl_trail_point){0};
}

void fl_trail_forget(fl_trail *t)
{
    forget_point(t);
    t->from_pass = 0;
    for (size_t i = 0; i < t->n_result; i++)
        fl_free(t->result[i].data);
    t->n_result = 0;
    for (int i = 0; i < 2; i++) {
        fl_free(t->text[i].text);
        t->text[i] = (fl_pass_text){0};
    }
}

/* --- the journal ---------------------------------------------------------- */

/* Head of a record, and how many bytes follow it. */
static bool read_head(const fl_journal_record *r, void *head, size_t size)
{
    if (r->size < size)
        return false;
    memcpy(head, r->data, size);
    return true;
}

static fleet_status note_life(fl_trail *t, const fl_journal_record *r)
{
    fl_life_record life;

    if (!read_head(r, &life, sizeof life))
        return FLEET_ECORRUPT;
    if (life.worker != (uint32_t)t->worker)
        return fl_fail(FLEET_EINVAL,
                       "the log %s is of worker %u, and this is worker %d",
                       t->folder, life.worker, t->worker);
    t->nonce = life.nonce;
    t->life = life.life;
    return FLEET_OK;
}

static fleet_status note_run(fl_trail *t, const fl_journal_record *r)
{
    fl_trail_run run;

    if (!read_head(r, &run, sizeof run))
        return FLEET_ECORRUPT;
    fl_trail_forget(t);
    t->run = run.run;
    return FLEET_OK;
}

/* A pass that was begun and has no push is begun again. */
static fleet_status note_pass(fl_trail *t, const fl_journal_record *r)
{
    fl_pass_record pass;

    if (!read_head(r, &pass, sizeof pass))
        return FLEET_ECORRUPT;
    if (pass.number == 1) {
        t->start_step = pass.step;
        t->start_reduced = pass.reduced;
    }
    if (pass.number != t->text[1].number) {
        fl_free(t->text[0].text);
        t->text[0] = t->text[1];
        t->text[1] = (fl_pass_text){0};
    }
    fl_free(t->text[1].text);
    t->text[1] = (fl_pass_text){
        pass.number, fl_strndup(r->data + sizeof pass, r->size - sizeof pass)};
    return t->text[1].text ? FLEET_OK : FLEET_ENOMEM;
}

static fleet_status note_over(fl_trail *t, const fl_journal_record *r)
{
    fl_pass_record pass;
    size_t size = r->size - sizeof pass;

    if (!read_head(r, &pass, sizeof pass) || size > sizeof t->mark)
        return FLEET_ECORRUPT;
    memcpy(t->mark, r->data + sizeof pass, size);
    t->from.state = size > 0 ? FL_TRAIL_OVER : FL_TRAIL_LOST;
    t->from.step = pass.step;
    t->from.reduced = pass.reduced;
    t->from.mark = t->mark;
    t->from.mark_size = size;
    t->from_pass = pass.number;
    return FLEET_OK;
}

static fleet_status note_result(fl_trail *t, const fl_journal_record *r)
{
    fl_trail_result *one;
    uint64_t number;

    if (!read_head(r, &number, sizeof number))
        return FLEET_ECORRUPT;
    FL_TRY(fl_grow(&t->result, &t->result_capacity, t->n_result + 1,
                   sizeof *t->result));
    one = &t->result[t->n_result];
    *one = (fl_trail_result){
        .kind = r->kind, .number = number, .size = r->size - sizeof number};
    FL_TRY(FL_NEW(&one->data, one->size + 1));
    memcpy(one->data, r->data + sizeof number, one->size);
    one->data[one->size] = 0;
    t->n_result++;
    return FLEET_OK;
}

static fleet_status note_leave(fl_trail *t, const fl_journal_record *r)
{
    uint64_t step;

    if (!read_head(r, &step, sizeof step))
        return FLEET_ECORRUPT;
    t->from.state = FL_TRAIL_LEAVING;
    t->from.step = step;
    return FLEET_OK;
}

static fleet_status note_record(fl_trail *t, const fl_journal_record *r)
{
    switch ((fl_trail_kind)r->kind) {
    case FL_NOTED_LIFE:
        return note_life(t, r);
    case FL_NOTED_RUN:
        return note_run(t, r);
    case FL_NOTED_PASS:
        return note_pass(t, r);
    case FL_NOTED_PASS_OVER:
        return note_over(t, r);
    case FL_NOTED_REDUCED:
    case FL_NOTED_COMMAND:
    case FL_NOTED_SAVE:
    case FL_NOTED_SAVED:
        return note_result(t, r);
    case FL_NOTED_LEAVES:
        return note_leave(t, r);
    case FL_NOTED_HAS_LEFT:
        t->from.state = FL_TRAIL_GONE;
        return FLEET_OK;
    }
    return FLEET_ECORRUPT;
}

static fleet_status read_records(fl_trail *t, fl_journal_reader *reader)
{
    fl_journal_record r;
    bool more = true;

    while (true) {
        fleet_status status;

        FL_TRY(fl_journal_next(reader, &r, &more));
        if (!more)
            return FLEET_OK;
        status = note_record(t, &r);
        if (status == FLEET_ECORRUPT)
            return fl_fail(FLEET_ECORRUPT,
                           "record %llu of the log %s is none of a worker's",
                           (unsigned long long)r.lsn, t->folder);
        FL_TRY(status);
    }
}

static fleet_status read_journal(fl_trail *t)
{
    fl_journal_reader *reader;
    fleet_status status = fl_journal_reader_open(&reader, t->folder);

    t->end = (fl_journal_end){.lsn = 1, .file = 1};
    if (status == FLEET_ENOENT) {
        fl_error_clear();
        return FLEET_OK;
    }
    FL_TRY(status);
    status = read_records(t, reader);
    if (status == FLEET_OK)
        t->end = fl_journal_reader_end(reader);
    if (status == FLEET_OK && *t->end.cut)
        FL_INFO(t->log, "worker %d: %s", t->worker, t->end.cut);
    t->end.cut = NULL;
    fl_journal_reader_close(reader);
    return status;
}

/* --- the slots ------------------------------------------------------------ */

static bool read_push(const fl_trail_record *r, fl_push_slot *head, size_t *at)
{
    const void *data = fl_trail_take(r, at, sizeof *head);

    if (data)
        memcpy(head, data, sizeof *head);
    return data != NULL;
}

/* Behind the journal: the last push, if its pass is not known to be over. A
 * trail without a run may have some of the one before, which go with it. */
static fleet_status note_pushes(fl_trail *t)
{
    fl_trail_point *from = &t->from;
    fl_push_slot head;
    size_t at = 0;

    FL_TRY(fl_trail_slots_read(&t->pushes, t->push, &from->n_push));
    if (t->run == 0)
        from->n_push = 0;
    if (from->n_push == 0 || from->state == FL_TRAIL_LEAVING ||
        from->state == FL_TRAIL_GONE)
        return FLEET_OK;
    if (!read_push(&t->push[from->n_push - 1], &head, &at))
        return FLEET_ECORRUPT;
    if (from->state != FL_TRAIL_NEW && head.step <= from->step)
        return FLEET_OK;
    from->state = head.mark_size > 0 ? FL_TRAIL_MIDDLE : FL_TRAIL_LOST;
    from->step = head.step;
    from->reduced = head.reduced;
    from->mark = fl_trail_take(&t->push[from->n_push - 1], &at, head.mark_size);
    from->mark_size = head.mark_size;
    t->from_pass = head.pass;
    return from->mark ? FLEET_OK : FLEET_ECORRUPT;
}

static fleet_status read_call(const fl_trail_record *r, fl_call_slot *head,
                              fl_trail_call *c)
{
    size_t at = 0;
    const void *data = fl_trail_take(r, &at, sizeof *head);
    const char *text;

    if (!data)
        return FLEET_ECORRUPT;
    memcpy(head, data, sizeof *head);
    text = fl_trail_take(r, &at, head->text_size);
    data = fl_trail_take(r, &at, head->n * sizeof(double));
    if (!text || !data)
        return FLEET_ECORRUPT;
    *c = (fl_trail_call){.step = head->step,
                         .reduced = head->reduced,
                         .reduces = head->reduces,
                         .flags = (uint16_t)head->flags,
                         .op = (uint16_t)head->op,
                         .text = head->has_text ? text : NULL,
                         .x = data,
                         .n = (int)head->n};
    return FLEET_OK;
}

/* A call behind the last push of a pass that is under way. */
static fleet_status note_calls(fl_trail *t)
{
    fl_trail_point *from = &t->from;
    fl_call_slot head;
    int n;

    FL_TRY(fl_trail_slots_read(&t->calls, t->call, &n));
    if (n == 0 || from->state != FL_TRAIL_MIDDLE)
        return FLEET_OK;
    FL_TRY(read_call(&t->call[n - 1], &head, &from->call));
    if (head.pass != t->from_pass ||
        (from->call.step <= from->step && from->call.reduced <= from->reduced))
        return FLEET_OK;
    from->has_call = true;
    return FLEET_OK;
}

fleet_status fl_trail_read(fl_trail *t)
{
    fleet_status status;

    FL_TRY(read_journal(t));
    status = note_pushes(t);
    if (status == FLEET_OK)
        status = note_calls(t);
    if (status == FLEET_ECORRUPT)
        return fl_fail(FLEET_ECORRUPT,
                       "what the log %s has is none of a "
                       "worker's",
                       t->folder);
    FL_TRY(status);
    t->early = t->from.state != FL_TRAIL_NEW;
    for (int i = 0; i < 2; i++)
        if (t->text[i].number == t->from_pass)
            t->from.text = t->text[i].text;
    return FLEET_OK;
}

/* --- going on ------------------------------------------------------------- */

const fl_trail_point *fl_trail_from(const fl_trail *t)
{
    return &t->from;
}

bool fl_trail_is_early(const fl_trail *t)
{
    return t->early;
}

fleet_status fl_trail_each_packet(const fl_trail *t, int push,
                                  fl_trail_visit *visit, void *arg)
{
    const fl_trail_record *r = &t->push[push];
    fleet_status status = FLEET_OK;
    fl_push_slot head = {0};
    size_t at = 0;

    if (!read_push(r, &head, &at) || !fl_trail_take(r, &at, head.mark_size))
        status = FLEET_ECORRUPT;
    if (status == FLEET_OK)
        status = fl_trail_visit_packets(r, &at, head.step, (int)head.n_lane,
                                        visit, arg);
    return status == FLEET_ECORRUPT
               ? fl_fail(FLEET_ECORRUPT, "a push in the log %s is none",
                         t->folder)
               : status;
}

void fl_trail_goes_on(fl_trail *t)
{
    t->early = false;
    t->pass = t->from_pass;
    t->in_pass = t->from.state == FL_TRAIL_MIDDLE;
    forget_point(t);
}

/* --- results -------------------------------------------------------------- */

/* The last one: a number may have been asked for again by a process that died
 * before it had written so. */
static const fl_trail_result *find(const fl_trail *t, fl_trail_kind kind,
                                   uint64_t number)
{
    for (size_t i = t->n_result; i > 0; i--)
        if (t->result[i - 1].kind == kind && t->result[i - 1].number == number)
            return &t->result[i - 1];
    return NULL;
}

static fleet_status is_another(const fl_trail *t, const char *what)
{
    return fl_fail(FLEET_ESTATE,
                   "worker %d was started again, and its program makes other "
                   "calls than it did: %s",
                   t->worker, what);
}

bool fl_trail_find_reduced(const fl_trail *t, uint64_t number, double *x, int n,
                           fleet_status *status)
{
    const fl_trail_result *r = find(t, FL_NOTED_REDUCED, number);

    *status = FLEET_OK;
    if (!r)
        return false;
    if (r->size != (size_t)n * sizeof *x)
        *status = is_another(t, "a sum over workers of another length");
    else if (n > 0)
        memcpy(x, r->data, r->size);
    return true;
}

bool fl_trail_find_command(const fl_trail *t, uint64_t step, char **answer,
                           int n_lane, fleet_status *status)
{
    const fl_trail_result *r = find(t, FL_NOTED_COMMAND, step);
    size_t at = 0;

    *status = FLEET_OK;
    if (!r)
        return false;
    for (int i = 0; answer && i < n_lane; i++) {
        if (at >= r->size) {
            *status = is_another(t, "a command of other lanes");
            return true;
        }
        answer[i] = fl_strdup(r->data + at);
        if (!answer[i])
            *status = FLEET_ENOMEM;
        at += strlen(r->data + at) + 1;
    }
    return true;
}

const char *fl_trail_find_save(const fl_trail *t, uint64_t step, bool *over,
                               fleet_status *status)
{
    const fl_trail_result *begun = find(t, FL_NOTED_SAVE, step);
    const fl_trail_result *end = find(t, FL_NOTED_SAVED, step);
    uint32_t code = FLEET_OK;

    *over = end != NULL && end->size == sizeof code;
    if (*over)
        memcpy(&code, end->data, sizeof code);
    *status = (fleet_status)code;
    return begun ? begun->data : NULL;
}
