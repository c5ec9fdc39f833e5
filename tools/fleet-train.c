/* fleet-train.c - train what a JSON file describes; docs/fleet-train.md. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <fleet/fleet.h>

static void show(void *user, const fleet_progress *p)
{
    char left[32] = "?", loss[32] = "-";

    (void)user;
    if (isfinite(p->seconds_left))
        snprintf(left, sizeof left, "%.0f s", p->seconds_left);
    if (isfinite(p->loss))
        snprintf(loss, sizeof loss, "%.4f", p->loss);
    fprintf(stderr,
            "%sepoch %lld/%lld  %lld samples  %.0f samples/s  loss %s  "
            "ETA %s%s",
            isatty(2) ? "\r\033[K" : "", (long long)p->epoch,
            (long long)p->epochs, (long long)p->samples, p->samples_per_s, loss,
            left, isatty(2) ? "" : "\n");
}

int main(int argc, char **argv)
{
    fleet_config_options options = {.on_progress = show};
    fleet_status status;
    char *line;
    bool help;

    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        printf("fleet-train %s\n", fleet_version());
        return 0;
    }
    help = argc == 2 && strcmp(argv[1], "--help") == 0;
    if (help || argc != 2 || argv[1][0] == '-') {
        fprintf(help ? stdout : stderr,
                "usage: fleet-train FILE.json | --help | --version\n"
                "Trains the model that FILE.json describes, as the worker or "
                "server that the\nenvironment says. The first worker prints "
                "one line of JSON.\n");
        return help ? 0 : 2;
    }
    status = fleet_train_from_config(argv[1], &options, &line);
    if (isatty(2))
        fprintf(stderr, "\n");
    if (status != FLEET_OK) {
        fprintf(stderr, "fleet-train: %s\n", fleet_last_error());
        return 1;
    }
    if (line && (puts(line) < 0 || fflush(stdout) != 0)) {
        perror("fleet-train: the closing line is lost");
        return 1;
    }
    fleet_free(line);
    return 0;
}
