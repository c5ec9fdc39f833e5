/* ps_dense.c - P1, P2: requests that bring dense blocks and are answered with
 * as many, over the same in ZeroMQ and nothing else. */
#include "ps_empty.h"
#include "raw.h"

enum { ROUNDS = 18 };
static const double SECONDS = 0.25;

static void ask(worker *w, fl_request *r)
{
    size_t block = FL_BLOCK * sizeof(float), n = w->bytes / block;
    fl_section *s;
    fl_msg_writer writer;
    uint64_t *key;

    fl_request_clear(r);
    fl_client_begin(w->client, 0, r, &writer, FL_MSG_STEP, ++w->step,
                    FL_MSG_END_OF_STEP);
    s = fl_msg_section(&writer, FL_SECTION_DENSE, 0);
    s->n_key = (uint32_t)n;
    key = fl_msg_column(&writer, FL_COLUMN_KEYS, n * sizeof *key);
    for (size_t i = 0; i < n; i++)
        key[i] = i;
    fl_msg_column(&writer, FL_COLUMN_VALUES, w->bytes);
    must(fl_client_add(w->client, r, &writer) == FLEET_OK, fleet_last_error());
    fl_client_send(w->client, r, fl_now_ms());
}

static void await(worker *w, fl_request *r)
{
    const fl_msg *msg;

    while (r->state == FL_REQUEST_SENT)
        work_socket(w);
    msg = fl_client_answer(w->client, r);
    must(msg && msg->column[0][FL_AT_VALUES].size == w->bytes,
         "a wrong answer");
}

/* --- rates: bytes of both directions per second --------------------------- */

static double ours(worker *w)
{
    double began = now(), took;
    long n = 0;

    for (int i = 0; i < WINDOW; i++)
        ask(w, &w->request[i]);
    for (; (took = now() - began) < SECONDS; n++) {
        await(w, &w->request[n % WINDOW]);
        ask(w, &w->request[n % WINDOW]);
    }
    for (int i = 0; i < WINDOW; i++)
        await(w, &w->request[i]);
    return 2.0 * (double)(n + WINDOW) * (double)w->bytes / (now() - began);
}

static double raw(raw_end *e)
{
    double began = now();
    long n = 0;

    for (int i = 0; i < WINDOW; i++)
        raw_send(e);
    for (; now() - began < SECONDS; n++) {
        raw_receive(e);
        raw_send(e);
    }
    for (int i = 0; i < WINDOW; i++)
        raw_receive(e);
    return 2.0 * (double)(n + WINDOW) * (double)e->size / (now() - began);
}

/* In a process of its own, so that it may fork before it has threads. */
static void measure(int say, void *row)
{
    const struct row {
        const char *id;
        size_t bytes;
        double floor, goal;
    } *r = row;
    helper server = helper_start(serve, NULL), peer[RAW_KINDS];
    raw_end e[RAW_KINDS] = {0};
    raw_rounds all = {0};
    worker w;

    for (int k = 0; k < RAW_KINDS; k++)
        peer[k] = helper_start(raw_serve, &(raw_spec){r->bytes, k});
    connect_to(&w, server.address, r->bytes);
    for (int k = 0; k < RAW_KINDS; k++)
        raw_connect(&e[k], peer[k].address, r->bytes, k);
    for (int i = -2; i < ROUNDS; i++) {
        double our_rate;

        raw_round_begin(&all);
        our_rate = ours(&w) * 1e-9;
        raw_round_end(&all, our_rate, raw(&e[RAW_PLAIN]) * 1e-9,
                      raw(&e[RAW_TUNED]) * 1e-9);
        if (i < 0)
            raw_rounds_forget(&all); /* warm */
    }
    raw_rounds_print(&all, false, r->id, r->floor, r->goal, "GB/s");
    fflush(stdout);
    close_worker(&w);
    for (int k = 0; k < RAW_KINDS; k++) {
        raw_close(&e[k]);
        helper_end(&peer[k]);
    }
    helper_end(&server);
    helper_say(say, "done");
}

int main(int argc, char **argv)
{
    static const struct row {
        const char *id;
        size_t bytes;
        double floor, goal;
    } row[] = {{"P1-1MB", 1 << 20, 0.80, 0.92},
               {"P1-4MB", 4 << 20, 0.80, 0.92},
               {"P2", 64 << 10, 0.6, 0.8}};

    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        if (is_wanted(argc, argv, row[i].id)) {
            helper h = helper_start(measure, (void *)(uintptr_t)&row[i]);

            waitpid(h.pid, NULL, 0);
        }
    return 0;
}
