/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tsocketd: decode a dataset once, feed every trainer on this machine.
 *
 *     options -> producer (name) -> feeds (source, fields, ring) -> streams -> pipeline (decode threads)
 *
 * Signals. SIGTERM and SIGINT end the run, at any time and within two seconds, however often they come. The handler
 * sets a flag, which the main thread looks at ten times a second and between the steps of the start, and starts a
 * timer, which ends a process that is stuck in a listing, a decode or a disk all the same: whatever it holds, the
 * kernel frees. SIGHUP has --config read again, for what may change while it runs; without a --config it ends the run
 * like the other two.
 *
 * Exit statuses are those of sysexits.h, for service managers: see `conclusion` in usage.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sysexits.h>
#include <unistd.h>

#include <tsocket/producer.h>

#include "../ipc/clock.h"
#include "../ipc/log.h"
#include "bookmark.h"
#include "check.h"
#include "feed.h"
#include "machine.h"
#include "notify.h"
#include "options.h"
#include "pipeline.h"
#include "progress.h"
#include "skip_list.h"
#include "usage.h"
#include "versions.h"

#define TICK_MS     100
#define PATIENCE_US 1500000 /* for an orderly end */

enum {
    EXIT_ENDED = EX_OK,
    EXIT_FOUND_BAD = 1, /* --check: there are bad images, or it was stopped before the end */
};

/* ---- signals: a handler reaches nothing but globals ---- */

static volatile sig_atomic_t asked;                     /* the signal that asked for the end, or 0 */
static volatile sig_atomic_t to_reload;                 /* SIGHUP has come */
static volatile sig_atomic_t stuck_status = EXIT_ENDED; /* of a process that must be ended by the timer */

static void on_signal(int number)
{
    static const struct itimerval patience = {
        .it_value = {.tv_sec = PATIENCE_US / 1000000, .tv_usec = PATIENCE_US % 1000000}};

    if (number == SIGALRM)
        _exit(stuck_status);
    if (!asked)
        setitimer(ITIMER_REAL, &patience, NULL);
    asked = number;
}

static void on_hangup(int number)
{
    (void)number;
    to_reload = true;
}

static void catch_signals(bool with_config)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    struct sigaction hangup = {.sa_handler = with_config ? on_hangup : on_signal, .sa_flags = SA_RESTART};

    sigaction(SIGHUP, &hangup, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGALRM, &action, NULL);
}

/* Threads inherit the mask of the one that starts them: blocked meanwhile, these signals stay with the main thread. */
static void block_signals(int how)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGALRM);
    pthread_sigmask(how, &set, NULL);
}

/* ---- the run ---- */

struct daemon {
    const struct tsp_options *options;
    int argc; /* for reading them again */
    char *const *argv;
    struct tsp_feed feeds[TSOCKET_STREAMS_MAX];
    uint32_t n_feeds;
    struct tsocket_producer *producer;
    struct tsp_pipeline *pipeline;
    struct tsp_cache *cache; /* NULL: none */
    struct tsp_bookmark bookmark;
    struct tsp_notify notify;
};

static int status_of(int error)
{
    switch (error) {
    case TSOCKET_EBUSY: /* later it may be free */
        return EX_TEMPFAIL;
    case TSOCKET_EINVAL:
        return EX_USAGE;
    case TSOCKET_EBAD_SAMPLE:
        return EX_DATAERR;
    default: /* memory, descriptors, sockets */
        return EX_OSERR;
    }
}

/* Says why the last call of the engine failed. */
static int failed(int error)
{
    tsi_log('E', "%s", tsocket_last_error());
    return status_of(error);
}

/* What may change while it runs. */
static void set_patience(const struct tsp_options *asked_for, struct tsocket_producer_options *options)
{
    options->join_grace_ms = asked_for->join_grace_ms;
    options->max_hold_ms = asked_for->max_hold_ms;
    options->side_share = asked_for->side_share;
    options->max_crashes = asked_for->max_crashes;
}

static int open_producer(struct daemon *daemon)
{
    const struct tsp_options *asked_for = daemon->options;
    struct tsocket_producer_options options;

    tsocket_producer_options_init(&options);
    options.name = asked_for->name;
    options.wait_for = asked_for->wait_for;
    set_patience(asked_for, &options);
    options.exit_when_idle = asked_for->exit_when_idle;
    options.allow_uids = asked_for->allow_uids.values;
    options.n_allow_uids = asked_for->allow_uids.count;
    options.allow_gids = asked_for->allow_gids.values;
    options.n_allow_gids = asked_for->allow_gids.count;
    for (int i = 0; i < TSOCKET_STAGES_MAX; i++)
        options.stage_names[i] = tsp_stage_names[i];
    options.ledger = asked_for->ledger;
    options.libraries = tsp_versions();
    int rc = tsocket_producer_open(&options, &daemon->producer);
    if (rc == TSOCKET_EINVAL || rc == TSOCKET_ESYSTEM) { /* the runtime folder, the lock, the ledger */
        failed(rc);
        return EX_CANTCREAT;
    }
    return rc == TSOCKET_OK ? EXIT_ENDED : failed(rc);
}

static int add_streams(struct daemon *daemon)
{
    char text[1024];

    for (uint32_t i = 0; i < daemon->n_feeds && !asked; i++) {
        int rc = tsp_feed_add(&daemon->feeds[i], daemon->producer);
        if (rc != TSOCKET_OK)
            return failed(rc);
        tsp_feed_describe(&daemon->feeds[i], text, sizeof(text));
        tsi_log('I', "%s", text);
    }
    return EXIT_ENDED;
}

static int create_cache(struct daemon *daemon)
{
    uint64_t counts[TSOCKET_STREAMS_MAX];
    char error[256];

    if (daemon->options->cache_bytes == 0)
        return EXIT_ENDED;
    for (uint32_t i = 0; i < daemon->n_feeds; i++)
        counts[i] = daemon->feeds[i].source->count;
    tsi_log('I', "cache: takes %.1f MiB of memory",
            (double)daemon->options->cache_bytes / (1024.0 * 1024)); /* slowly */
    daemon->cache = tsp_cache_create(daemon->options->cache_bytes, counts, daemon->n_feeds, error, sizeof(error));
    if (daemon->cache != NULL)
        return EXIT_ENDED;
    tsi_log('E', "%s", error);
    return EX_OSERR;
}

static int start_threads(struct daemon *daemon, uint32_t workers)
{
    struct tsp_stream_plan plans[TSOCKET_STREAMS_MAX];
    char error[512];

    int rc = tsocket_producer_start(daemon->producer);
    if (rc != TSOCKET_OK)
        return failed(rc);
    for (uint32_t i = 0; i < daemon->n_feeds; i++)
        plans[i] = daemon->feeds[i].plan;
    daemon->pipeline = tsp_pipeline_start(daemon->producer, plans, daemon->n_feeds, &daemon->options->limits,
                                          daemon->cache, workers, error, sizeof(error));
    if (daemon->pipeline == NULL) {
        tsi_log('E', "%s", error);
        return EX_OSERR;
    }
    tsi_log('I', "serving as %s with %u decode threads; pid %ld", daemon->options->name, workers, (long)getpid());
    return EXIT_ENDED;
}

/* Whether progress is drawn on a terminal. */
static bool is_live(const struct daemon *daemon)
{
    return !daemon->options->quiet && daemon->options->log_format == TSP_LOG_TEXT && isatty(STDERR_FILENO);
}

static uint32_t workers_of(const struct daemon *daemon)
{
    return daemon->options->workers > 0 ? daemon->options->workers : tsp_machine_cpus();
}

static void note_cache(const struct daemon *daemon)
{
    if (daemon->cache == NULL)
        return;
    struct tsp_cache_state state = tsp_cache_look(daemon->cache);
    tsocket_producer_note(daemon->producer, "cache_capacity_bytes", (double)state.capacity_bytes);
    tsocket_producer_note(daemon->producer, "cache_used_bytes", (double)state.used_bytes);
    tsocket_producer_note(daemon->producer, "cache_pictures", (double)state.kept);
    tsocket_producer_note(daemon->producer, "cache_found", (double)state.found);
    tsocket_producer_note(daemon->producer, "cache_missed", (double)state.missed);
}

static char log_level(const struct tsp_options *options)
{
    return options->quiet || options->list ? 'W' : options->verbose ? 'D' : 'I';
}

/*
 * SIGHUP: reads flags, environment and --config again and applies what may change while streams are served; everything
 * else keeps its value until the next start. Options that have become wrong change nothing.
 */
static void reload(struct daemon *daemon)
{
    static struct tsp_options now; /* large */
    struct tsocket_producer_options limits;
    struct tsp_problem problem;

    tsp_notify_reloading(&daemon->notify, tsi_clock_ns());
    if (tsp_options_parse(daemon->argc, daemon->argv, environ, &now, &problem)) {
        tsi_log_level(log_level(&now));
        tsocket_producer_options_init(&limits);
        set_patience(&now, &limits);
        tsocket_producer_change(daemon->producer, &limits);
        tsi_log('I', "SIGHUP: %s is read again", now.config);
        tsp_options_fini(&now);
    } else {
        tsi_log('E', "SIGHUP: nothing is changed: %s", problem.text);
    }
    tsp_notify_ready(&daemon->notify);
}

/* Ten times a second: what the daemon does besides serving, which other threads do. */
static void tick(struct daemon *daemon, struct tsp_progress *progress)
{
    uint64_t now_ns = tsi_clock_ns();

    if (to_reload) {
        to_reload = false;
        reload(daemon);
    }
    note_cache(daemon);
    tsp_bookmark_tick(&daemon->bookmark, daemon->producer, now_ns);
    tsp_progress_tick(progress, daemon->producer, now_ns);
    tsp_notify_tick(&daemon->notify, daemon->producer, now_ns);
}

static const char *signal_name(int number)
{
    return number == SIGHUP ? "SIGHUP" : number == SIGINT ? "SIGINT" : "SIGTERM";
}

/* Until all is read, something failed, or somebody asked for the end. */
static int wait_for_end(struct daemon *daemon)
{
    struct tsp_progress progress;
    int rc = TSOCKET_EAGAIN;

    tsp_progress_init(&progress, is_live(daemon), tsi_clock_ns());
    tsp_notify_ready(&daemon->notify);
    while (!asked && rc == TSOCKET_EAGAIN) {
        rc = tsocket_producer_wait(daemon->producer, TICK_MS);
        tick(daemon, &progress);
    }
    int status = rc == TSOCKET_END || asked ? EXIT_ENDED : failed(rc);
    if (rc == TSOCKET_ESYSTEM && !asked) /* of the dataset: nothing else fails by now */
        status = EX_IOERR;
    else if (status == EXIT_ENDED)
        tsi_log('I', "ends: %s", asked ? signal_name(asked) : tsocket_last_error());
    tsp_notify_stopping(&daemon->notify);
    tsp_bookmark_close(&daemon->bookmark, daemon->producer, rc == TSOCKET_END && !asked);
    tsp_progress_end(&progress, daemon->producer);
    return status;
}

static void log_cache(const struct daemon *daemon)
{
    if (daemon->cache == NULL)
        return;
    struct tsp_cache_state state = tsp_cache_look(daemon->cache);
    uint64_t looked = state.found + state.missed;
    tsi_log('I', "cache: %llu pictures in %.1f of %.1f MiB, %.1f %% of %llu samples found in it",
            (unsigned long long)state.kept, (double)state.used_bytes / (1024.0 * 1024),
            (double)state.capacity_bytes / (1024.0 * 1024),
            looked > 0 ? 100.0 * (double)state.found / (double)looked : 0, (unsigned long long)looked);
}

static int serve(struct daemon *daemon)
{
    signal(SIGPIPE, SIG_IGN); /* a consumer that dies is no reason to die */
    signal(SIGXFSZ, SIG_IGN); /* nor is a ring larger than ulimit -f: it is refused, with the reason */
    int status = add_streams(daemon);
    if (status == EXIT_ENDED)
        status = create_cache(daemon);
    if (status == EXIT_ENDED && !asked) {
        block_signals(SIG_BLOCK);
        status = start_threads(daemon, workers_of(daemon));
        block_signals(SIG_UNBLOCK);
        if (status == EXIT_ENDED)
            status = wait_for_end(daemon);
        tsocket_producer_stop(daemon->producer);
        tsp_pipeline_join(daemon->pipeline);
        log_cache(daemon);
    }
    return status;
}

/* ---- the start ---- */

/* A spec that is not a folder can be wrong in itself only; a folder may be there the next time. */
static int source_status(const char *source)
{
    bool generated = strncmp(source, "synthetic:", 10) == 0 || strncmp(source, "null:", 5) == 0;

    return generated ? EX_USAGE : EX_NOINPUT;
}

static int open_feeds(struct daemon *daemon, struct tsp_problem *problem_out)
{
    const struct tsp_options *options = daemon->options;

    for (uint32_t i = 0; i < options->n_streams && !asked; i++) {
        const struct tsp_stream_options *stream = &options->streams[i];
        struct tsp_source_limits limits = {
            .max_bytes = options->max_bytes,
            .hidden = stream->hidden,
            .skip = stream->skip,
        };
        if (!tsp_feed_open(options, stream, &limits, &daemon->feeds[i], problem_out))
            return source_status(stream->source);
        daemon->n_feeds++;
        if (!tsp_feed_size(&daemon->feeds[i], problem_out))
            return EX_USAGE;
    }
    return EXIT_ENDED;
}

/* What was served before must be what is to be served now, or its epochs cannot be gone on with. */
static int open_bookmark(struct daemon *daemon, struct tsp_problem *problem_out)
{
    if (asked ||
        tsp_bookmark_open(&daemon->bookmark, daemon->options->state, daemon->feeds, daemon->n_feeds, problem_out))
        return EXIT_ENDED;
    return EX_CONFIG;
}

static bool has_printed(const char *option)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return true;
    tsi_log('E', "%s: standard output: %s", option, strerror(errno));
    return false;
}

static int list(const struct daemon *daemon)
{
    for (uint32_t i = 0; i < daemon->n_feeds; i++)
        tsp_feed_list(&daemon->feeds[i], daemon->options->named_streams, stdout);
    return has_printed("--list") ? EXIT_ENDED : EX_IOERR;
}

/* ---- --check ---- */

struct watch {
    struct tsp_progress progress;
    const struct tsp_feed *feed;
    uint64_t begun_ns;
};

/* "train: [#########...........] 45 %, 1234 of 2742, 812/s, 0:00:02 left": fits 80 columns */
static bool watch_check(void *context, uint64_t checked)
{
    struct watch *watch = context;
    uint64_t now_ns = tsi_clock_ns(), count = watch->feed->source->count;
    double rate = (double)checked * 1e9 / (double)(now_ns - watch->begun_ns + 1);
    char text[256], bar[TSP_PROGRESS_BAR + 1], left[32];

    if (tsp_progress_due(&watch->progress, now_ns) && checked > 0) {
        snprintf(text, sizeof(text), "%s: [%s] %.0f %%, %llu of %llu, %.0f/s, %s left", watch->feed->options->name,
                 tsp_progress_bar(checked, count, bar), 100 * (double)checked / (double)count,
                 (unsigned long long)checked, (unsigned long long)count, rate,
                 tsp_progress_time((double)(count - checked) / rate, left, sizeof(left)));
        tsp_progress_show(&watch->progress, text, now_ns);
    }
    return !asked;
}

static bool run_check(const struct daemon *daemon, const struct tsp_feed *feed, struct tsp_check_result *result_out)
{
    struct watch watch = {.feed = feed, .begun_ns = tsi_clock_ns()};
    bool live = is_live(daemon);
    const struct tsp_check check = {
        .source = feed->source,
        .limits = daemon->options->limits,
        .workers = workers_of(daemon),
        .stream = daemon->options->named_streams ? feed->options->name : NULL,
        .out = stdout,
        .json = daemon->options->json,
        .erase = live && isatty(STDOUT_FILENO) ? TSP_PROGRESS_ERASE : NULL,
        .go_on = watch_check,
        .context = &watch,
    };
    char error[1024];

    tsp_progress_init(&watch.progress, live, watch.begun_ns);
    bool good = tsp_check_run(&check, result_out, error, sizeof(error));
    tsp_progress_clear(&watch.progress);
    if (!good) {
        tsi_log('E', "%s", error);
        return false;
    }
    tsp_check_print(&check, result_out);
    return true;
}

/* That it cannot be written should not take a check of a million files to find out. */
static bool try_skip(const char *path)
{
    struct tsp_skip_file file;
    char error[1024];

    if (!tsp_skip_file_create(path, &file, error, sizeof(error))) {
        tsi_log('E', "--write-skip %s", error);
        return false;
    }
    tsp_skip_file_discard(&file);
    return true;
}

/* All at once, so that a check which is killed on its way leaves nothing beside the list. */
static bool write_skip(const struct tsp_feed *feed, const struct tsp_check_result *result, const char *path)
{
    struct tsp_skip_file file;
    char error[1024];
    bool good = tsp_skip_file_create(path, &file, error, sizeof(error));

    for (uint64_t i = 0; good && i < result->bad; i++)
        tsp_skip_file_add(&file, feed->source->ops->key(feed->source, result->bad_samples[i]));
    good = good && tsp_skip_file_finish(&file, error, sizeof(error));
    if (!good)
        tsi_log('E', "--write-skip %s", error);
    return good;
}

static int check_feed(const struct daemon *daemon, const struct tsp_feed *feed)
{
    const char *path = daemon->options->write_skip;
    struct tsp_check_result result;

    if (path != NULL && !try_skip(path))
        return EX_CANTCREAT;
    if (!run_check(daemon, feed, &result))
        return EX_IOERR;
    /* A list of a part would look like one of the whole. */
    bool good = path == NULL || result.stopped || write_skip(feed, &result, path);
    free(result.bad_samples);
    if (!good)
        return EX_IOERR;
    return result.bad == 0 && !result.stopped ? EXIT_ENDED : EXIT_FOUND_BAD;
}

static int check(const struct daemon *daemon)
{
    int status = EXIT_ENDED;

    stuck_status = EXIT_FOUND_BAD;
    for (uint32_t i = 0; i < daemon->n_feeds && !asked; i++) {
        int its = check_feed(daemon, &daemon->feeds[i]);

        status = its > status ? its : status;
    }
    return has_printed("--check") ? status : EX_IOERR;
}

/* The name first: that it is taken should not take a walk over a million files to find out. */
static int run(const struct tsp_options *options, int argc, char *const *argv)
{
    static struct daemon daemon; /* large, and there is one */
    struct tsp_problem problem;

    bool serves = !options->list && !options->check;

    daemon.options = options;
    daemon.argc = argc;
    daemon.argv = argv;
    tsp_notify_open(&daemon.notify, tsi_clock_ns());
    catch_signals(options->config != NULL);
    int status = serves ? open_producer(&daemon) : EXIT_ENDED;
    if (status != EXIT_ENDED)
        return status;
    status = open_feeds(&daemon, &problem);
    if (status == EXIT_ENDED && serves)
        status = open_bookmark(&daemon, &problem);
    if (status != EXIT_ENDED)
        tsi_log('E', "%s", problem.text);
    else if (!asked)
        status = options->list ? list(&daemon) : options->check ? check(&daemon) : serve(&daemon);
    tsocket_producer_close(daemon.producer);
    tsp_cache_destroy(daemon.cache);
    for (uint32_t i = 0; i < daemon.n_feeds; i++)
        tsp_feed_close(&daemon.feeds[i]);
    tsp_notify_close(&daemon.notify);
    return status;
}

/*
 * Whoever starts us may have closed the standard streams. The next files that are opened would take their numbers, and
 * log lines land in a lock or a ring: so the gaps are filled, with what can only be read.
 */
static void fill_standard_streams(void)
{
    int fd;

    do
        fd = open("/dev/null", O_RDONLY);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        close(fd);
}

static void set_up_log(const struct tsp_options *options)
{
    static const enum tsi_log_format formats[] = {
        [TSP_LOG_TEXT] = TSI_LOG_PLAIN, [TSP_LOG_JSON] = TSI_LOG_JSON, [TSP_LOG_JOURNALD] = TSI_LOG_JOURNALD};

    tsi_log_level(log_level(options));
    tsi_log_format(formats[options->log_format]);
}

int main(int argc, char **argv)
{
    static struct tsp_options options;
    struct tsp_problem problem;
    int status = EXIT_ENDED;

    fill_standard_streams();
    tsi_log_program("tsocketd");
    if (!tsp_options_parse(argc, argv, environ, &options, &problem)) {
        fprintf(stderr, "tsocketd: %s\n", problem.text);
        return problem.in_file ? EX_CONFIG : EX_USAGE;
    }
    set_up_log(&options);
    if (options.help)
        tsp_usage_print(stdout);
    else if (options.version)
        printf("tsocketd %s\n", tsocket_version());
    else
        status = run(&options, argc, argv);
    tsp_options_fini(&options);
    return status;
}
