/* pass_keys.c - keys of a pass, listed by all threads of a pool. */
#include "runtime/working_set/pass_keys.h"

#include <string.h>

typedef struct adding {
    fl_pass_keys *to;
    const uint64_t *key;
    int64_t n;
    fleet_status status[FL_N_PART];
} adding;

static void add_part(void *arg, int task, int thread)
{
    adding *a = arg;
    fl_key_set *s = &a->to->part[task];
    bool is_new;

    (void)thread;
    for (int64_t i = 0; i < a->n; i++) {
        if (fl_part_of(fl_mix(a->key[i])) != task)
            continue;
        a->status[task] = fl_key_set_room(s, 1);
        if (a->status[task] != FLEET_OK)
            return;
        fl_key_set_add(s, a->key[i], &is_new);
    }
}

fleet_status fl_pass_keys_add(fl_pass_keys *s, fl_pool *pool,
                              const uint64_t *key, int64_t n)
{
    adding a = {.to = s, .key = key, .n = n};

    if (pool)
        fl_pool_run(pool, FL_N_PART, add_part, &a);
    else
        for (int i = 0; i < FL_N_PART; i++)
            add_part(&a, i, 0);
    for (int i = 0; i < FL_N_PART; i++)
        FL_TRY(a.status[i]);
    return FLEET_OK;
}

int64_t fl_pass_keys_count(const fl_pass_keys *s)
{
    int64_t n = 0;

    for (int i = 0; i < FL_N_PART; i++)
        n += s->part[i].n;
    return n;
}

void fl_pass_keys_mark(fl_pass_keys *s)
{
    for (int i = 0; i < FL_N_PART; i++)
        s->marked[i] = s->part[i].n;
}

void fl_pass_keys_back(fl_pass_keys *s)
{
    for (int i = 0; i < FL_N_PART; i++)
        s->part[i].n = s->marked[i];
}

void fl_pass_keys_clear(fl_pass_keys *s)
{
    for (int i = 0; i < FL_N_PART; i++) {
        fl_key_set *p = &s->part[i];

        p->n = 0;
        if (p->slot)
            memset(p->slot, 0, p->n_slot * sizeof *p->slot);
    }
}

void fl_pass_keys_done(fl_pass_keys *s)
{
    for (int i = 0; i < FL_N_PART; i++)
        fl_key_set_done(&s->part[i]);
}
