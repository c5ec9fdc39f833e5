/* score.c - score lines of raw text, as they come: what a service does that
 * knows its customers only as lines of the file that the model was trained on.
 *
 *   bin/score MODEL <LINES
 *
 * MODEL is what fleet-train saved. Each line of standard input gives one with
 * its first score; one that does not fit is reported on stderr, and gives a
 * line "-", so that scores stay beside their lines. */
#include <fleet/fleet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

/* The scores of an output that has several for a sample, as a softmax has. */
enum { MOST_SCORES = 1024 };

static void score_line(fleet_predictor *p, const char *text, size_t size)
{
    float score[MOST_SCORES];
    void *out[] = {score};
    size_t room[] = {sizeof score};
    int64_t samples = 0;

    if (fleet_predictor_run_text(p, text, size, FLEET_LABEL_UNREAD, out, room,
                                 1, &samples) != FLEET_OK) {
        fprintf(stderr, "score: %s\n", fleet_last_error());
        puts("-");
    } else if (samples == 1) { /* else it was a comment, or empty */
        printf("%.6g\n", (double)score[0]);
    }
}

int main(int argc, char **argv)
{
    fleet_predictor *p;
    char *text = NULL;
    size_t size = 0;
    ssize_t n;

    if (argc != 2 || strcmp(argv[1], "--help") == 0)
        return fprintf(argc == 2 ? stdout : stderr,
                       "usage: score MODEL <LINES\n"),
               argc == 2 ? 0 : 2;
    p = fleet_load_inference_model(argv[1]);
    if (!p)
        return fprintf(stderr, "score: %s\n", fleet_last_error()), 1;
    while ((n = getline(&text, &size, stdin)) > 0)
        score_line(p, text, (size_t)n);
    free(text);
    fleet_predictor_destroy(p);
    return 0;
}
