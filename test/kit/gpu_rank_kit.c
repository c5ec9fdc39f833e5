/* gpu_rank_kit.c - see gpu_rank_kit.h. */
#define _GNU_SOURCE
#define SUITE gpu_rank_kit
#include "gpu_rank_kit.h"
#include "device_kit.h"
#include "test.h"

#include <arpa/inet.h>
#include <math.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "fleet/job/handle.h"
#include "runtime/exec/prefetch.h"
#include "runtime/reduce/whole_weights.h"

void gpu_rank_open(int ranks)
{
    gpu_kit_open();
    if (!device_kit_is_emulated()) {
        device_kit_need_gpus(ranks, false); /* threads would share its queue */
        return;
    }
    gpu_kit_control()->set_devices(ranks);
    setenv("FLEET_NCCL_PATH", test_beside("nccl"), 1);
}

void gpu_rank_close(void)
{
    gpu_kit_close();
}

/* --- a rank -------------------------------------------------------------- */

typedef struct one {
    gpu_rank_lesson *s;
    fleet_role role;
    char device[16];
    pthread_t thread;
} one;

static void spoil(const gpu_rank_lesson *s, int rank, work *k)
{
    kit_batch *b = k->b[rank + s->ranks];

    if (rank == 0 || s->bad_rank != rank)
        return;
    if (s->bad_label)
        ((int64_t *)(void *)(uintptr_t)b->feed[1].data)[7] = s->bad_label;
    else
        ((float *)(void *)(uintptr_t)b->feed[0].data)[33] = NAN;
}

static fleet_status train(kit_model *m, const gpu_rank_lesson *s, int rank,
                          const work *k)
{
    double sum = 1;

    for (int pass = 0; pass < s->passes; pass++) {
        for (int i = rank; i < k->n; i += s->ranks)
            FL_TRY(kit_run(m->e, k->b[i]));
        FL_TRY(fleet_executor_flush(m->e));
        FL_TRY(fl_executor_end_pass(m->e, &sum, 1));
    }
    return FLEET_OK;
}

fleet_status gpu_rank_train(kit_model *m, gpu_rank_lesson *s, int rank)
{
    fleet_status status;
    work k;

    work_open(&k, m, s->batches, s->last ? s->last : 50);
    spoil(s, rank, &k);
    status = train(m, s, rank, &k);
    work_close(&k);
    return status;
}

static void keep_result(gpu_rank_lesson *s, int rank, const kit_model *m)
{
    const fl_flat *g = m->f->store->flats;

    CHECK_OK(fl_whole_weights_locked(m->f->store)); /* all ranks ask at once */
    CHECK_OK(fl_store_to_host(m->f->store));
    CHECK(g && !g->next && g->n <= GPU_RANK_FLOATS);
    memcpy(s->weight[rank], g->weight, (size_t)g->n * sizeof(float));
    s->updates[rank] = m->f->store->updates;
}

static fleet_status live(kit_model *m, gpu_rank_lesson *s, int rank)
{
    if (s->also.dgc.smallest)
        m->p->training.dgc.smallest = s->also.dgc.smallest;
    if (s->before)
        FL_TRY(s->before(m, s, rank));
    FL_TRY(fleet_init_worker(m->f));
    FL_TRY((s->work ? s->work : gpu_rank_train)(m, s, rank));
    keep_result(s, rank, m);
    if (rank == 0)
        s->hash = kit_hash(m->f);
    FL_TRY(fleet_stop_worker(m->f));
    return s->after ? s->after(m, s, rank) : FLEET_OK;
}

static void *be_one(void *arg)
{
    one *r = arg;
    gpu_rank_lesson *s = r->s;
    kit_options how = s->how;
    int rank = r->role.index;
    kit_model m;

    how.role = &r->role;
    how.device = r->device;
    how.max_batch = 50;
    if (s->open)
        s->open(&m, &how);
    else
        kit_open(&m, s->kind, &how);
    s->status[rank] = live(&m, s, rank);
    if (s->status[rank] != FLEET_OK)
        snprintf(s->error[rank], sizeof *s->error, "%s", fleet_last_error());
    kit_close(&m);
    return NULL;
}

/* --- all of them --------------------------------------------------------- */

/* Where they meet: a socket that listens, as fleetrun makes it. */
static int listen_there(char address[40])
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t size = sizeof at;

    CHECK(bind(fd, (struct sockaddr *)&at, size) == 0 && listen(fd, 9) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&at, &size) == 0);
    snprintf(address, 40, "127.0.0.1:%d", ntohs(at.sin_port));
    return fd;
}

void gpu_rank_try(gpu_rank_lesson *s)
{
    one r[GPU_RANK_MOST];
    char master[40];
    int listener = listen_there(master);

    if (s->passes == 0)
        s->passes = 1;
    for (int i = 0; i < s->ranks; i++) {
        r[i] = (one){.s = s,
                     .role = {.index = i,
                              .worker_num = s->ranks,
                              .gpu = device_kit_gpu_of(i),
                              .master = master,
                              .listen_fd = i == 0 ? listener : 0}};
        snprintf(r[i].device, sizeof r[i].device, "gpu:%d",
                 device_kit_gpu_of(i));
        CHECK(pthread_create(&r[i].thread, NULL, be_one, &r[i]) == 0);
    }
    for (int i = 0; i < s->ranks; i++)
        CHECK(pthread_join(r[i].thread, NULL) == 0);
}

void gpu_rank_run(gpu_rank_lesson *s)
{
    gpu_rank_try(s);
    for (int i = 0; i < s->ranks; i++) {
        if (s->status[i] != FLEET_OK)
            test_fail(__FILE__, __LINE__, "rank %d: %s", i, s->error[i]);
        CHECK(memcmp(s->weight[i], s->weight[0], sizeof *s->weight) == 0);
        CHECK_INT(s->updates[i], s->updates[0]);
    }
}
