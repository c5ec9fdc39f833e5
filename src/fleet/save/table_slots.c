/* table_slots.c - counts of rows by slot: made, as text, and read again. */
#include "fleet/save/table_slots.h"

#include <string.h>

#include <fleet/table.h>

#include "base/json/json_write.h"
#include "base/memory.h"
#include "fleet/save/table_part.h"
#include "runtime/life/accessor.h"

enum { N_SLOT = FL_MOST_SLOT + 1 };

typedef struct slot_sums {
    const fl_rows *from;
    uint64_t since; /* rows that have changed after it are hot */
    uint32_t slot[N_SLOT];
    int64_t rows[N_SLOT], hot[N_SLOT];
    double shows[N_SLOT], clicks[N_SLOT];
} slot_sums;

static fleet_status add_row(void *arg, int bucket, uint64_t key,
                            const float *row)
{
    slot_sums *s = arg;
    const float *shown = fl_rows_shown(s->from, row);
    int slot = fl_seen_slot(shown[FL_AT_SEEN]);

    (void)bucket;
    (void)key;
    s->rows[slot]++;
    s->hot[slot] += fl_row_of((float *)(uintptr_t)row)->changed_at > s->since;
    s->shows[slot] += (double)shown[FL_AT_SHOW];
    s->clicks[slot] += (double)shown[FL_AT_CLICK];
    return FLEET_OK;
}

/* The slots with rows come first; how many there are. */
static int64_t pack(slot_sums *s)
{
    int64_t n = 0;

    for (uint32_t i = 0; i < N_SLOT; i++) {
        if (s->rows[i] == 0)
            continue;
        s->slot[n] = i;
        s->rows[n] = s->rows[i];
        s->hot[n] = s->hot[i];
        s->shows[n] = s->shows[i];
        s->clicks[n++] = s->clicks[i];
    }
    return n;
}

static fleet_status print_slots(const slot_sums *s, int64_t n, char **answer)
{
    fl_json *json = fl_json_object();
    fleet_status status;

    FL_GOTO(done, fl_json_put(json, "slots",
                              fl_json_words(s->slot, n, sizeof *s->slot)));
    FL_GOTO(done, fl_json_put(json, "rows",
                              fl_json_words(s->rows, n, sizeof *s->rows)));
    FL_GOTO(done,
            fl_json_put(json, "hot", fl_json_words(s->hot, n, sizeof *s->hot)));
    FL_GOTO(done, fl_json_put(json, "shows",
                              fl_json_words(s->shows, n, sizeof *s->shows)));
    FL_GOTO(done, fl_json_put(json, "clicks",
                              fl_json_words(s->clicks, n, sizeof *s->clicks)));
    *answer = fl_json_print(json, false);
    status = *answer ? FLEET_OK : FLEET_ENOMEM;
done:
    fl_json_free(json);
    return status;
}

fleet_status fl_table_slots(const fl_store *store, fl_rows *rows, char **answer)
{
    uint64_t updates = (uint64_t)store->updates;
    fleet_status status;
    slot_sums *s;

    FL_TRY(FL_NEW(&s, sizeof *s));
    s->from = rows;
    s->since = updates > FLEET_HOT_UPDATES ? updates - FLEET_HOT_UPDATES : 0;
    status = rows->methods->each(rows, add_row, s);
    if (status == FLEET_OK)
        status = print_slots(s, pack(s), answer);
    fl_free(s);
    return status;
}

/* --- answers -------------------------------------------------------------- */

static fleet_status read_column(const fl_at *root, const char *name,
                                size_t size, void *data, int64_t *n)
{
    const fl_at at = fl_at_key(root, name);
    int64_t count = 0;

    FL_TRY(fl_at_words(&at, size, data, &count));
    if (*n >= 0 && count != *n)
        return fl_fail(FLEET_EFORMAT, "%s: %lld numbers of %lld slots", at.path,
                       (long long)count, (long long)*n);
    *n = count;
    return FLEET_OK;
}

fleet_status fl_slot_counts_read(const char *text, fl_slot_counts *c)
{
    fl_json *json = NULL;
    fleet_status status = fl_json_parse(text, strlen(text), "slots", &json);
    fl_at root = fl_at_root(json);

    *c = (fl_slot_counts){.n = -1};
    FL_GOTO(done, status);
    FL_GOTO(done,
            read_column(&root, "slots", sizeof *c->slot, &c->slot, &c->n));
    FL_GOTO(done, read_column(&root, "rows", sizeof *c->rows, &c->rows, &c->n));
    FL_GOTO(done, read_column(&root, "hot", sizeof *c->hot, &c->hot, &c->n));
    FL_GOTO(done,
            read_column(&root, "shows", sizeof *c->shows, &c->shows, &c->n));
    status = read_column(&root, "clicks", sizeof *c->clicks, &c->clicks, &c->n);
done:
    fl_json_free(json);
    return status;
}

void fl_slot_counts_done(fl_slot_counts *c)
{
    fl_free(c->slot);
    fl_free(c->rows);
    fl_free(c->hot);
    fl_free(c->shows);
    fl_free(c->clicks);
}
