# A worker of the story of beanstalk_test.go, with the client Beaneater: story.rb PORT FIRST COUNT.
require 'beaneater'

port, first, count = ARGV.map(&:to_i)
$stdout.sync = true
GONE = [Beaneater::NotConnected, EOFError, SystemCallError, IOError]

def reach(port)
  c = Beaneater.new("127.0.0.1:#{port}")
  c.tubes.watch!('story')
  c
rescue *GONE
  sleep 0.05
  retry
end

c = reach(port)
n = first
while n < first + count
  begin
    c.tubes['story'].put(n.to_s, pri: 1024, delay: n % 50 == 0 ? 1 : 0, ttr: 60)
    n += 1
  rescue *GONE
    puts "again #{n}"
    c = reach(port)
  end
end
loop do
  removing = false
  body = nil
  begin
    job = c.tubes.reserve(1)
    body = job.body
    if body.to_i % 40 == 1 && job.stats.releases == 0
      job.release(pri: 1024, delay: 1)
    elsif body.to_i % 40 == 2 && job.stats.buries == 0
      job.bury(pri: 1024)
    else
      removing = true
      job.delete
      puts "done #{body}"
    end
  rescue Beaneater::TimedOutError, Beaneater::DeadlineSoonError
    next
  rescue Beaneater::NotFoundError # the client has sent the request again to a server that was started again
    puts "unsure #{body}" if removing
  rescue *GONE
    puts "unsure #{body}" if removing
    c = reach(port)
  end
end
