/* follow.c - score with a model while a job trains it on: what its servers
 * change is in the scores moments later.
 *
 *   bin/follow MODEL SERVERS LINES
 *
 * MODEL is what bin/ctr or fleet-train saved, SERVERS the job's "ip:port,...",
 * LINES a file as bin/predict takes it: until the job is over their mean score
 * is printed each second. FLEET_KEYS: as docs/security.md has it. */
#include <pthread.h>
#include <sys/types.h>
#include <unistd.h>

#include "multislot.h"

typedef struct follower {
    fleet_predictor *predictor;
    fleet_delta_feed *feed;
    int over; /* 1: the job is over; 2: it has failed */
} follower;

/* A thread: all that the servers tell goes into the predictor. */
static void *follow_job(void *arg)
{
    follower *f = arg;
    const fleet_feed_batch *batch;
    fleet_status status;

    while ((status = fleet_feed_next(f->feed, 1000, &batch)) == FLEET_OK)
        if (batch && fleet_predictor_apply(f->predictor, f->feed) != FLEET_OK)
            break;
    if (status != FLEET_EEND)
        fprintf(stderr, "follow: %s\n", fleet_last_error());
    __atomic_store_n(&f->over, status == FLEET_EEND ? 1 : 2, __ATOMIC_RELEASE);
    return NULL;
}

/* The mean of the first output over all lines; below 0: a line is wrong. */
static double mean_score(fleet_predictor *p, const char *name)
{
    static sample s; /* large for a stack */
    FILE *file = fopen(name, "r");
    float score[1024] = {-1};
    char *text = NULL;
    double sum = 0;
    size_t size = 0;

    s = (sample){.file = name};
    while (file && sum >= 0 && getline(&text, &size, file) > 0 && ++s.line) {
        if (read_sample(&s, text, p) != 0 ||
            fleet_predictor_run(p, s.feed, fleet_predictor_input_num(p),
                                (void *[]){score}, (size_t[]){sizeof score},
                                1) != FLEET_OK)
            score[0] = -INFINITY;
        sum += (double)score[0];
    }
    free(text);
    return file && fclose(file) == 0 && s.line > 0 ? sum / (double)s.line : -1;
}

int main(int argc, char **argv)
{
    follower f = {0};
    double score = 0;
    pthread_t thread;

    if (argc != 4 || !(f.predictor = fleet_load_inference_model(argv[1])) ||
        !(f.feed = fleet_feed_open(
              &(fleet_feed_options){.server_endpoints = argv[2]})) ||
        pthread_create(&thread, NULL, follow_job, &f) != 0)
        return fprintf(stderr, "follow: %s\n", fleet_last_error()), 1;
    for (int over = 0; !over && score >= 0; sleep(!over)) {
        over = __atomic_load_n(&f.over, __ATOMIC_ACQUIRE);
        score = mean_score(f.predictor, argv[3]);
        fprintf(stderr, "%.6f\n", score);
    }
    if (score < 0) /* and so no more is followed */
        return 1;
    pthread_join(thread, NULL);
    fleet_feed_close(f.feed);
    fleet_predictor_destroy(f.predictor);
    return f.over != 1;
}
