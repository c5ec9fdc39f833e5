/* accessor_test.c - what rows have been shown and clicked: updates, shrinks and
 * saves of 1,000 random histories against test/runtime/accessor_ref.py, which
 * has formulas of its own. */
#define SUITE accessor
#include "golden.h"
#include "test.h"

#include <string.h>

#include "base/text.h"
#include "runtime/graph/table_options.h"
#include "runtime/life/accessor.h"

enum { DIM = 2, HISTORIES = 1000, EVENTS = 120 };

/* A row without states, and its gradient. */
typedef struct one_row {
    fl_life life;
    fl_rows rows;
    float row[DIM + FL_N_ACCESSOR];
    float grad[DIM + FL_N_PUSHED];
    uint64_t random;
    int gone, saved;
} one_row;

static int below(one_row *r, int n)
{
    r->random = r->random * 6364136223846793005u + 1442695040888963407u;
    return (int)((r->random >> 33) % (uint64_t)n);
}

static void update(one_row *r, bool also)
{
    int show = 1 + below(r, 6), click = below(r, show + 1), slot = below(r, 9);

    r->grad[DIM + FL_AT_SHOW] = (float)show;
    r->grad[DIM + FL_AT_CLICK] = (float)click;
    r->grad[DIM + FL_AT_SLOT] = (float)slot;
    if (also)
        fl_accessor_update(&r->rows, NULL, (float *[]){r->row},
                           (const float *[]){r->grad}, 1);
}

static void save(one_row *r, fleet_save_mode mode)
{
    const fleet_accessor *a = &r->life.o.accessor;
    float *x = fl_accessor_of(&r->rows, r->row);

    r->saved += fl_accessor_saves(a, mode, x);
    fl_accessor_saved(a, mode, x);
}

static void live(one_row *r, bool to_the_end)
{
    for (int i = 0; i < EVENTS; i++) {
        int event = below(r, 16);

        if (event < 5) {
            update(r, i < EVENTS / 2 || to_the_end);
        } else if (event > 5) {
            save(r, event < 12 ? FLEET_SAVE_DAY_END
                               : (fleet_save_mode)((event - 12) % 3));
        } else if (fl_accessor_shrink(&r->life.o.accessor,
                                      fl_accessor_of(&r->rows, r->row))) {
            memset(r->row, 0, sizeof r->row);
            r->gone++;
        }
    }
}

static void add_float(fl_text *t, float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    fl_text_add(t, "%08x ", bits);
}

TEST(a_thousand_histories_end_as_an_independent_reference_says)
{
    fl_text t = {0};

    for (int i = 0; i < HISTORIES; i++) {
        one_row r = {.random = (uint64_t)i, .rows = {.dim = DIM}};
        const float *x = fl_accessor_of(&r.rows, r.row);

        r.life.o.accessor.kind = FLEET_CTR_ACCESSOR;
        fl_accessor_fill(&r.life.o.accessor);
        r.rows.life = &r.life;
        r.rows.n_row = FL_N_ACCESSOR;
        x = fl_accessor_of(&r.rows, r.row);
        live(&r, i % 2 == 0);
        add_float(&t, x[FL_AT_SHOW]);
        add_float(&t, x[FL_AT_CLICK]);
        add_float(&t, x[FL_AT_DELTA_SCORE]);
        fl_text_add(&t, "%d %d %d %d\n", fl_unseen_days(x[FL_AT_SEEN]),
                    fl_seen_slot(x[FL_AT_SEEN]), r.gone, r.saved);
        CHECK(r.row[0] == 0 && r.row[1] == 0);
    }
    golden_check("accessor.txt", t.chars);
    fl_text_done(&t);
}

TEST(what_two_gradients_bring_adds_up_and_the_lower_slot_stays)
{
    one_row r = {.rows = {.dim = DIM}};
    float a[DIM + FL_N_PUSHED] = {9, 9, 3, 1, 5};
    float b[DIM + FL_N_PUSHED] = {7, 7, 2, 2, 4}, sum[DIM + FL_N_PUSHED];

    r.life.o.accessor.kind = FLEET_CTR_ACCESSOR;
    r.rows.life = &r.life;
    CHECK_INT(fl_rows_pushed(&r.rows), DIM + FL_N_PUSHED);
    fl_add_pushed(&r.rows, sum, a, b);
    CHECK(sum[DIM] == 5 && sum[DIM + 1] == 3 && sum[DIM + 2] == 4);
    fl_add_pushed(&r.rows, b, b, a);
    CHECK(memcmp(sum + DIM, b + DIM, FL_N_PUSHED * sizeof *b) == 0);
    CHECK(b[0] == 7);
    r.life.o.accessor.kind = FLEET_NO_ACCESSOR;
    CHECK_INT(fl_rows_pushed(&r.rows), DIM);
}
