<?php
// A worker of the story of beanstalk_test.go, with the client Pheanstalk: story.php PORT FIRST COUNT.
require '/usr/share/php/Pheanstalk/autoload.php';

use Pheanstalk\Exception\ConnectionException;
use Pheanstalk\Exception\DeadlineSoonException;
use Pheanstalk\Exception\SocketException;
use Pheanstalk\Pheanstalk;

[, $port, $first, $count] = array_map('intval', $argv);

function say(string $what, string $body): void
{
    fwrite(STDOUT, "$what $body\n");
}

function reach(int $port): Pheanstalk
{
    for (;;) {
        try {
            return Pheanstalk::create('127.0.0.1', $port)->useTube('story')->watch('story')->ignore('default');
        } catch (ConnectionException | SocketException $e) {
            usleep(50000);
        }
    }
}

$c = reach($port);
for ($n = $first; $n < $first + $count;) {
    try {
        $c->put((string) $n, 1024, $n % 50 === 0 ? 1 : 0, 60);
        $n++;
    } catch (ConnectionException | SocketException $e) {
        say('again', $n);
        $c = reach($port);
    }
}
for (;;) {
    $removing = false;
    try {
        $job = $c->reserveWithTimeout(1);
        if ($job === null) {
            continue;
        }
        $body = $job->getData();
        if ($body % 40 === 1 && (int) $c->statsJob($job)['releases'] === 0) {
            $c->release($job, 1024, 1);
        } elseif ($body % 40 === 2 && (int) $c->statsJob($job)['buries'] === 0) {
            $c->bury($job);
        } else {
            $removing = true;
            $c->delete($job);
            say('done', $body);
        }
    } catch (DeadlineSoonException $e) {
    } catch (ConnectionException | SocketException $e) {
        if ($removing) {
            say('unsure', $body);
        }
        $c = reach($port);
    }
}
