/* table.c - M1: bytes that a row of a table takes beyond its key, its weights
 * and its states, at 10,000,000 rows: dimensions 1, 8, 16 and 64 with 0, 1 and
 * 2 states, the worst of which counts. What the process has more than before,
 * each table in a process of its own. */
#include "helper.h"
#include "runtime/store/table.h"

enum { ROWS = 10000000, BATCH = 1 << 14, MOST_STATE = 2 };

/* Bytes of memory that this process has. */
static double resident(void)
{
    FILE *f = fopen("/proc/self/statm", "r");
    long pages = 0;

    must(f && fscanf(f, "%*d %ld", &pages) == 1, "no /proc/self/statm");
    fclose(f);
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

/* Random keys, as hashed ids are. */
static void make_rows(fl_rows *r)
{
    static uint64_t key[BATCH];
    static float *row[BATCH];
    uint64_t state = 1;

    for (int64_t made = 0; made < ROWS; made += BATCH) {
        int64_t n = ROWS - made < BATCH ? ROWS - made : BATCH;

        for (int64_t i = 0; i < n; i++)
            key[i] = next_random(&state);
        check(r->methods->make(r, key, n, row));
    }
}

typedef struct shape {
    int64_t dim;
    int n_state;
} shape;

/* Says how many bytes a row takes. */
static void measure(int say, void *arg)
{
    const shape *s = arg;
    const fl_filler zeros = {0};
    char text[40];
    double before;
    fl_rows *r;

    before = resident();
    check(fl_table_make("rows", s->dim, 0, &zeros, &r));
    check(r->methods->set_state(r, s->n_state, 0, 0));
    make_rows(r);
    snprintf(text, sizeof text, "%.2f",
             (resident() - before) / (double)r->methods->count(r));
    helper_say(say, text);
}

static void print_row(int64_t dim)
{
    double worst = 0, bytes = 0, payload = 0;
    int at = 0;

    for (int n = 0; n <= MOST_STATE; n++) {
        helper h = helper_start(measure, &(shape){dim, n});
        double whole = atof(h.address);
        double own = 8 + 4.0 * (double)dim * (1 + n);

        waitpid(h.pid, NULL, 0);
        if (n > 0 && whole - own <= worst)
            continue;
        worst = whole - own;
        bytes = whole;
        payload = own;
        at = n;
    }
    printf("{\"id\": \"M1-%d\", \"ratio\": %.1f, \"floor\": 48, \"goal\": 32, "
           "\"ours\": %.1f, \"peer\": %.0f, \"unit\": \"bytes per row beyond "
           "its payload, at most\", \"peer_name\": \"payload with %d states\", "
           "\"rounds\": 1}\n",
           (int)dim, worst, bytes, payload, at);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static const int64_t dim[] = {1, 8, 16, 64};

    for (size_t i = 0; i < sizeof dim / sizeof *dim; i++) {
        char id[20];

        snprintf(id, sizeof id, "M1-%d", (int)dim[i]);
        if (is_wanted(argc, argv, id) || is_wanted(argc, argv, "M1"))
            print_row(dim[i]);
    }
    return 0;
}
