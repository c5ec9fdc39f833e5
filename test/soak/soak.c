/* soak.c - a process of a job that trains for a given time, and says whether
 * its memory and its descriptors stayed what they were; test/soak/run starts
 * some of them under fleetrun.
 *
 *   soak sync|async FILE SECONDS FOLDER
 *
 * FILE has lines of MultiSlot text: a label, IDS slots of one id, one slot of
 * two. Every tenth pass worker 0 tests and saves, to FOLDER.
 *
 * A thread looks at /proc/self all the time. What it saw past the middle is
 * compared with what it saw at the end: resident memory may have grown by 2 %
 * and 4 MB, the least number of open descriptors by 2: a file that is being
 * read and its pipe. Whatever is lost by the pass is lost hundreds of times. */
#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <fleet/fleet.h>

enum { IDS = 26, SAMPLES = 400, BATCH = 256, EVERY = 10 };

#define TRY(call)                                                              \
    do {                                                                       \
        fleet_status status_ = (call);                                         \
        if (status_ != FLEET_OK)                                               \
            return status_;                                                    \
    } while (0)

/* --- looking -------------------------------------------------------------- */

typedef struct look {
    long kb;
    int descriptors;
} look;

typedef struct watch {
    look seen[SAMPLES];
    int n;
    double seconds; /* of the whole run */
    pthread_mutex_t lock;
    pthread_cond_t end;
    bool ends;
    pthread_t thread;
} watch;

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static long resident_kb(void)
{
    FILE *f = fopen("/proc/self/status", "re");
    char line[200];
    long kb = -1;

    while (f && kb < 0 && fgets(line, sizeof line, f))
        sscanf(line, "VmRSS: %ld", &kb);
    if (f)
        fclose(f);
    return kb;
}

static int open_descriptors(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = -3; /* ".", "..", and that of d */

    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return n;
}

static void *keep_looking(void *arg)
{
    watch *w = arg;
    double begun = now();

    pthread_mutex_lock(&w->lock);
    while (!w->ends && w->n < SAMPLES) {
        double next = begun + (w->n + 1) * w->seconds / (SAMPLES * 0.75);
        struct timespec at = {(time_t)next,
                              (long)((next - (double)(time_t)next) * 1e9)};

        w->seen[w->n++] = (look){resident_kb(), open_descriptors()};
        while (!w->ends && now() < next)
            pthread_cond_timedwait(&w->end, &w->lock, &at);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static void begin_watch(watch *w)
{
    pthread_condattr_t monotonic;

    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->end, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (pthread_create(&w->thread, NULL, keep_looking, w) != 0)
        exit(2);
}

static void end_watch(watch *w)
{
    pthread_mutex_lock(&w->lock);
    w->ends = true;
    pthread_cond_signal(&w->end);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
}

/* The most memory and the least descriptors of a part of the run. */
static look summary(const watch *w, double from, double to)
{
    look s = {0, 1 << 30};

    for (int i = (int)(from * w->n); i < (int)(to * w->n); i++) {
        s.kb = w->seen[i].kb > s.kb ? w->seen[i].kb : s.kb;
        if (w->seen[i].descriptors < s.descriptors)
            s.descriptors = w->seen[i].descriptors;
    }
    return s;
}

/* A line that test/soak/run finds in the log. */
static bool verdict(const watch *w, const char *mode, const char *who)
{
    look a = summary(w, 0.5, 0.6), b = summary(w, 0.9, 1);
    bool flat = w->n >= 40 && b.kb <= a.kb + a.kb / 50 + 4096 &&
                b.descriptors <= a.descriptors + 2;

    fprintf(stderr, "soak: %-6s %-9s %8ld %8ld %6d %6d  %s\n", mode, who, a.kb,
            b.kb, a.descriptors, b.descriptors,
            flat         ? "flat"
            : w->n >= 40 ? "GROWS"
                         : "TOO SHORT");
    return flat;
}

/* --- training ------------------------------------------------------------- */

typedef struct scene {
    bool a_sync;
    const char *file, *folder;
    double seconds;
    fleet *fleet;
    fleet_program *program;
    fleet_model model;
    fleet_dataset *train, *test;
    fleet_executor *trainer, *tester;
    long passes;
} scene;

static char names[IDS + 1][8];

static fleet_status describe(scene *s)
{
    fleet_id_slot ids[IDS + 1];
    fleet_ctr_options options = {.label = "label",
                                 .no_dense = 1,
                                 .ids = ids,
                                 .n_ids = IDS + 1,
                                 .embedding_dim = 9,
                                 .hidden = (int64_t[]){64, 32},
                                 .n_hidden = 2};

    for (int i = 0; i <= IDS; i++) {
        snprintf(names[i], sizeof names[i], "s%d", i);
        ids[i] = (fleet_id_slot){.name = names[i], .dim = i < IDS ? 1 : 2};
    }
    s->program = fleet_program_create(s->fleet);
    fleet_ctr_dnn(s->program, &options, &s->model);
    return fleet_program_status(s->program);
}

static fleet_status minimize(scene *s)
{
    fleet_distributed_strategy strategy = FLEET_DISTRIBUTED_STRATEGY_INIT;
    fleet_optimizer *o = fleet_adam(s->fleet, 1e-3f, NULL);

    strategy.a_sync = s->a_sync;
    o = fleet_distributed_optimizer(s->fleet, o, &strategy);
    return fleet_minimize(o, s->model.loss);
}

static fleet_dataset *open_data(const scene *s, int64_t shuffle)
{
    fleet_slot slots[IDS + 2] = {{.name = "label", .dtype = FLEET_INT64}};
    fleet_dataset_options options = {.format = FLEET_MULTISLOT,
                                     .batch_size = BATCH,
                                     .thread_num = 2,
                                     .slots = slots,
                                     .n_slot = IDS + 2,
                                     .shuffle = shuffle};

    for (int i = 0; i <= IDS; i++)
        slots[1 + i] = (fleet_slot){
            .name = names[i], .dtype = FLEET_INT64, .dim = i < IDS ? 1 : 2};
    fleet_dataset *d = fleet_queue_dataset(s->fleet, &options);
    if (d && fleet_dataset_set_filelist(d, &s->file, 1) != FLEET_OK)
        return NULL;
    return d;
}

/* What happens between passes: the others wait for worker 0. */
static fleet_status visit(scene *s)
{
    fleet_evaluation e;
    uint64_t hash;

    if (fleet_is_first_worker(s->fleet)) {
        TRY(fleet_evaluate(s->tester, s->test, &s->model, &e));
        TRY(fleet_params_hash(s->fleet, &hash));
        TRY(fleet_save_persistables(s->fleet, s->folder));
    }
    return fleet_barrier_worker(s->fleet);
}

/* Until the time is over for any of the workers. */
static fleet_status train(scene *s)
{
    double begun = now(), over = 0;

    while (over == 0) {
        TRY(fleet_train_from_dataset(s->trainer, s->train, NULL, NULL));
        if (s->passes++ % EVERY == 0)
            TRY(visit(s));
        over = now() - begun > s->seconds;
        TRY(fleet_metrics_max(s->fleet, &over, 1));
    }
    return FLEET_OK;
}

static fleet_status run_worker(scene *s)
{
    fleet_executor_options for_test = {.for_test = 1};

    s->train = open_data(s, 2000);
    s->test = open_data(s, 0);
    s->trainer = fleet_executor_create(s->program, NULL);
    s->tester = fleet_executor_create(s->program, &for_test);
    if (!s->train || !s->test || !s->trainer || !s->tester)
        return FLEET_ESTATE;
    TRY(fleet_init_worker(s->fleet));
    TRY(train(s));
    return fleet_stop_worker(s->fleet);
}

static fleet_status run(scene *s)
{
    TRY(describe(s));
    TRY(minimize(s));
    return fleet_is_server(s->fleet) ? fleet_run_server(s->fleet)
                                     : run_worker(s);
}

int main(int argc, char **argv)
{
    static watch w;
    fleet_status status;
    char who[32];
    scene s = {0};

    if (argc != 5)
        return fprintf(stderr, "usage: soak sync|async FILE SECONDS FOLDER\n"),
               2;
    s.a_sync = strcmp(argv[1], "async") == 0;
    s.file = argv[2];
    s.folder = argv[4];
    s.seconds = w.seconds = atof(argv[3]);
    if (fleet_init(&s.fleet, NULL) != FLEET_OK)
        return fprintf(stderr, "soak: %s\n", fleet_last_error()), 1;
    begin_watch(&w);
    status = run(&s);
    end_watch(&w);
    if (status != FLEET_OK)
        fprintf(stderr, "soak: %s\n", fleet_last_error());
    if (fleet_is_server(s.fleet))
        snprintf(who, sizeof who, "server %d", fleet_server_index(s.fleet));
    else
        snprintf(who, sizeof who, "worker %d", fleet_worker_index(s.fleet));
    if (s.passes > 0)
        fprintf(stderr, "%ld passes\n", s.passes);
    fleet_executor_destroy(s.trainer);
    fleet_executor_destroy(s.tester);
    fleet_destroy(s.fleet);
    return status != FLEET_OK || !verdict(&w, argv[1], who);
}
