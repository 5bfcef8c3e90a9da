//! How communicators come to be: from a unique id, or by splitting one.

use super::communicator::{Communicator, Core, RouteChoice, Ties, TransportChoice, parse_transport};
use super::control::Control;
use super::join::join;
use super::link::{Link, MOST_BODY_BYTES, Receiver};
use super::net::Net;
use super::place::{Cookie, Place, Token, UniqueId, hash, listen, new_cookie};
use super::post::Post;
use super::rendezvous::{await_end, check_rank, take_alone};
use super::session::Session;
use super::star::{accept_members, connect_to_hub};
use super::topology::{Identity, Topology, host_candidates};
use super::wire::{Reader, Writer};
use crate::error::{Error, Kind, Result, ensure, fail};
use crate::platform::meeting::{self, Meeting};
use crate::platform::process::{Watched, spare};
use crate::platform::{Bootstrap, Member, Term, agree, agree_or, bind};
use std::collections::BTreeSet;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};

const CREATE: &str = "create_communicator";

/// The ranks while their communicator is being made: connected, with no shared memory yet.
struct Connected<'a>(&'a Net);

impl Bootstrap for Connected<'_> {
    fn rank(&self) -> usize {
        self.0.rank
    }

    fn size(&self) -> usize {
        self.0.size
    }

    fn all_gather(&self, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.0.all_gather(CREATE, mine)
    }

    fn barrier(&self) -> Result<()> {
        self.all_gather(&[]).map(drop)
    }

    fn exchange_descriptors(&self, _mine: Option<BorrowedFd<'_>>) -> Result<Vec<Option<OwnedFd>>> {
        fail!(Logic, "the communicator is still being made")
    }

    fn failure(&self) -> Option<Error> {
        self.0.failure()
    }
}

impl Communicator {
    /// Collective: makes the communicator of `size` ranks (processes, or threads of processes) that hold the same id.
    /// `prior` is a failure of the caller's own checks: the rank takes part all the same, so every rank learns of it.
    /// # Errors
    /// INVALID_VALUE: ranks, sizes or settings that do not fit, an id used before. NOT_SUPPORTED: ranks of different
    /// platforms, or of several hosts on the CPU platform; a GPU or driver that is too old. COMMUNICATION_ERROR: a rank died or
    /// did not come.
    pub fn create(id: &UniqueId, rank: i32, size: i32, prior: Result<()>) -> Result<Arc<Communicator>> {
        Communicator::create_on(id, rank, size, || prior.and_then(|()| bind()))
    }

    /// [`Communicator::create`] on the platform that `bind` gives.
    pub fn create_on(
        id: &UniqueId,
        rank: i32,
        size: i32,
        bind: impl FnOnce() -> Result<Arc<dyn Member>>,
    ) -> Result<Arc<Communicator>> {
        let token = Token::decode(id)?;
        let platform = check_rank(rank, size).and_then(|()| bind());
        if size == 1 && rank == 0 {
            let platform = platform?;
            take_alone(&token.cookie)?;
            return Communicator::alone(platform);
        }
        // Whatever this rank lacks, it tells the others at the rendezvous.
        let checked = platform.and_then(|p| {
            let own = Identity::here(p.name())?;
            let choices = choices(&own)?;
            let control = Control::acquire()?;
            let listener = if rank == 0 { Some(listen()?) } else { None };
            let place = listener.as_deref().map(Place::of).transpose()?;
            Ok((p, own, choices, control, listener, place))
        });
        let prior = checked.as_ref().map(drop).map_err(Error::clone);
        let place = checked.as_ref().ok().and_then(|c| c.5.clone());
        let guest = join(&token, rank, size, place, prior);
        spare::restore();
        let guest = match guest {
            Ok(guest) => guest,
            Err(error) => {
                // What this rank holds may be what the others cannot be told for.
                let _control = checked.map(|c| c.3);
                await_end(&token.cookie, &error);
                return Err(error);
            }
        };
        let (platform, own, choices, control, listener, _) = checked?;
        let (rank, size) = (rank as usize, size as usize);
        let streams = match &listener {
            Some(listener) => accept_members(&token.cookie, size, listener, &|missing| {
                guest.early_failure(missing)
            }),
            None => connect_to_hub(&token.cookie, rank, &guest.places[0]).map(|s| vec![Some(s)]),
        };
        let streams = guest.conclude(streams);
        spare::restore();
        let streams = streams.inspect_err(|error| await_end(&token.cookie, error))?;
        Birth {
            cookie: token.cookie,
            rank,
            size,
            platform,
            choices,
            own,
            control,
        }
        .assemble(streams)
    }

    fn alone(platform: Arc<dyn Member>) -> Result<Arc<Communicator>> {
        let own = Identity::here(platform.name())?;
        let alone = Communicator::over(Core {
            name: hash(&new_cookie()?),
            rank: 0,
            size: 1,
            platform,
            topology: Topology::new(vec![0], &[&own.node]),
            choices: choices(&own)?,
            net: None,
            ties: Ties::default(),
            control: None,
        });
        alone.acquaint(CREATE)?;
        Ok(alone)
    }

    /// Collective on self: ranks of equal colour form a communicator, ordered by (key, rank here). Colour -1 gives `None`.
    /// The new one has connections of its own and lives as long as it likes. `prior` is a failure of the caller's own checks:
    /// the rank takes part all the same, so every rank learns of it.
    /// # Errors
    /// INVALID_VALUE for a colour below -1 (on every rank), COMMUNICATION_ERROR, SYSTEM_ERROR.
    pub fn split(&self, color: i32, key: i32, prior: Result<()>) -> Result<Option<Arc<Communicator>>> {
        let session = self.enter("split_communicator")?;
        let checked = prior.and_then(|()| {
            ensure!(
                color >= -1,
                InvalidValue,
                "colour {color} is below -1 (-1 is WHOLEMEMORY_SPILT_NO_COLOR)"
            );
            Ok(())
        });
        agree(&session, &[], checked)?;
        self.split_within(&session, color, key)
    }

    pub(super) fn split_within(
        &self,
        session: &Session<'_>,
        color: i32,
        key: i32,
    ) -> Result<Option<Arc<Communicator>>> {
        // Every member offers a listener and a cookie: whose are used follows from the keys of all.
        let offer = || -> Result<_> {
            let listener = listen()?;
            Ok((
                new_cookie()?,
                Place::of(&listener)?,
                listener,
                self.platform.rebind()?,
                Identity::here(self.platform.name())?,
            ))
        };
        let offer = agree(session, &[], offer())?;
        let record = offer
            .1
            .write(
                Writer::default()
                    .u32(color as u32)
                    .u32(key as u32)
                    .bytes(&offer.0),
            )
            .0;
        let unreadable = || Error::new(Kind::Communication, "a rank sent an unreadable offer");
        let mut members = Vec::new();
        for (rank, bytes) in session.all_gather(&record)?.iter().enumerate() {
            let mut r = Reader(bytes);
            let (its_color, its_key) = (
                r.u32().ok_or_else(unreadable)? as i32,
                r.u32().ok_or_else(unreadable)? as i32,
            );
            let cookie = r
                .bytes()
                .and_then(|b| Cookie::try_from(b).ok())
                .ok_or_else(unreadable)?;
            let place = Place::read(&mut r).ok_or_else(unreadable)?;
            if its_color == color && color >= 0 {
                members.push((its_key, rank, cookie, place));
            }
        }
        members.sort_by_key(|(its_key, rank, ..)| (*its_key, *rank));
        let child = self.join_members(session, &members, offer.2, offer.3, offer.4);
        spare::restore();
        let made = child.as_ref().map(drop).map_err(Error::clone);
        match agree(session, &[], made) {
            Ok(()) => child,
            Err(error) => {
                if let Ok(Some(child)) = child {
                    let _ = child.destroy();
                }
                Err(error)
            }
        }
    }

    /// Two steps on the parent: all are connected to their rank 0, then every rank 0 has taken the connections; so nobody
    /// waits for a member that could not come.
    fn join_members(
        &self,
        session: &Session<'_>,
        members: &[(i32, usize, Cookie, Place)],
        listener: Watched<TcpListener>,
        platform: Arc<dyn Member>,
        own: Identity,
    ) -> Result<Option<Arc<Communicator>>> {
        let size = members.len();
        let rank = members.iter().position(|m| m.1 == self.rank).unwrap_or(0);
        let connected = match members {
            [_, _, ..] if rank > 0 => {
                connect_to_hub(&members[0].2, rank, &members[0].3).map(|s| vec![Some(s)])
            }
            _ => Ok(Vec::new()),
        };
        let connected = agree(session, &[], connected)?;
        let control = if size > 1 {
            Control::acquire().map(Some)
        } else {
            Ok(None)
        };
        let streams = match control {
            Err(error) => Err(error),
            Ok(Some(control)) if rank == 0 => {
                accept_members(&members[0].2, size, &listener, &|_| self.failure())
                    .map(|s| Some((control, s)))
            }
            Ok(control) => Ok(control.map(|c| (c, connected))),
        };
        let streams = agree(session, &[], streams)?;
        let choices = (self.route, self.transport_choice);
        match streams {
            Some((control, streams)) => Birth {
                cookie: members[0].2,
                rank,
                size,
                platform,
                choices,
                own,
                control,
            }
            .assemble(streams)
            .map(Some),
            None if size == 1 => Communicator::alone(platform).map(Some),
            None => Ok(None),
        }
    }
}

fn choices(own: &Identity) -> Result<(RouteChoice, TransportChoice)> {
    Ok((RouteChoice::parse(&own.route)?, parse_transport(&own.transport)?))
}

/// A communicator about to be made, its connections just opened.
struct Birth {
    cookie: Cookie,
    rank: usize,
    size: usize,
    platform: Arc<dyn Member>,
    choices: (RouteChoice, TransportChoice),
    own: Identity,
    control: Control,
}

impl Birth {
    fn assemble(self, streams: Vec<Option<Watched<TcpStream>>>) -> Result<Arc<Communicator>> {
        let net = Net::new(self.rank, self.size);
        let receiver: Weak<dyn Receiver> = Arc::downgrade(&net) as Weak<dyn Receiver>;
        let start = |(tag, stream): (usize, Option<Watched<TcpStream>>)| {
            stream
                .map(|s| Link::start(self.control.shared(), s, tag, receiver.clone(), MOST_BODY_BYTES))
                .transpose()
        };
        let (mut links, mut failure) = (Vec::new(), None);
        for one in streams.into_iter().enumerate().map(start) {
            failure = failure.or(one.as_ref().err().cloned());
            links.push(one.unwrap_or_default());
        }
        net.set_links(links);
        let made = match failure {
            Some(error) => Err(error),
            None => self.furnish(&net),
        };
        if let Err(error) = &made {
            net.give_up(error);
            net.depart();
            net.close();
        }
        made
    }

    fn furnish(self, net: &Arc<Net>) -> Result<Arc<Communicator>> {
        let boot = Connected(net);
        let post = Post::open(self.cookie, self.rank);
        let identities: Vec<Identity> = net
            .all_gather(CREATE, &self.own.encode())?
            .iter()
            .map(|b| {
                Identity::decode(b)
                    .ok_or_else(|| Error::new(Kind::Communication, "a rank sent an unreadable identity"))
            })
            .collect::<Result<_>>()?;
        net.set_who(
            identities
                .iter()
                .map(|i| format!("process {} on {}", i.pid, i.host_name))
                .collect(),
        );
        let platform = [Term::new("the platform", &self.own.platform)];
        let post = agree_or(&boot, &platform, Kind::NotSupported, post)?;
        let settings = [
            Term::new("WHOLEMEMORY_ROUTE", &self.own.route),
            Term::new("WHOLEMEMORY_TRANSPORT", &self.own.transport),
        ];
        agree(&boot, &settings, Ok(()))?;
        let (hosts, meeting) = self.shake_hands(&boot, &post, &host_candidates(&identities))?;
        let nodes: Vec<&str> = identities.iter().map(|i| i.node.as_str()).collect();
        let topology = Topology::new(hosts, &nodes);
        if self.platform.name() == "cpu" && !topology.is_single_host() {
            let stranger = topology
                .host_of
                .iter()
                .position(|h| *h != topology.host_of[0])
                .expect("several hosts");
            fail!(
                NotSupported,
                "the CPU platform works within one host: rank {stranger} ({}, user {}) does not share memory with rank 0 ({}, user {}); \
                 use GPUs and NCCL for several hosts",
                identities[stranger].host_name,
                identities[stranger].user,
                identities[0].host_name,
                identities[0].user
            );
        }
        if let Some(meeting) = &meeting {
            net.set_meeting(meeting);
        }
        net.set_platform(self.platform.clone());
        let processes: BTreeSet<u32> = (0..self.size)
            .filter(|r| topology.host_of[*r] == topology.host_of[self.rank])
            .map(|r| identities[r].pid)
            .collect();
        self.platform.set_local_processes(processes.len());
        let made = Communicator::over(Core {
            name: hash(&self.cookie),
            rank: self.rank,
            size: self.size,
            platform: self.platform,
            topology,
            choices: self.choices,
            net: Some(net.clone()),
            ties: Ties {
                meeting,
                post: Some(post),
            },
            control: Some(self.control),
        });
        made.acquaint(CREATE)?;
        Ok(made)
    }

    /// Proves who shares memory: the lowest rank of every group of candidates hands the others a segment to meet in.
    /// Returns the host of every rank and, if all ranks are on one, the meeting. Collective.
    fn shake_hands(
        &self,
        boot: &Connected<'_>,
        post: &Post,
        groups: &[usize],
    ) -> Result<(Vec<usize>, Option<Arc<Meeting>>)> {
        let leader = groups
            .iter()
            .position(|g| *g == groups[self.rank])
            .expect("the own group");
        let segment = if leader == self.rank {
            Some(meeting::create(self.size))
        } else {
            None
        };
        let segment = agree(boot, &[], segment.transpose())?;
        let mut handed = vec![0u8; self.size];
        if let Some(segment) = &segment {
            for rank in (self.rank + 1..self.size).filter(|r| groups[*r] == groups[self.rank]) {
                handed[rank] = u8::from(post.send(rank, 0, segment.as_fd()).is_ok());
            }
        }
        let handed = boot.all_gather(&handed)?;
        let mine = match &segment {
            Some(segment) => Meeting::open(segment, self.rank, self.size).map(Some),
            None if handed[leader][self.rank] == 1 => post
                .take(0, leader)
                .and_then(|fd| fd.map(|fd| Meeting::open(fd, self.rank, self.size)).transpose()),
            None => Ok(None),
        };
        post.forget(0);
        let mine = agree(boot, &[], mine)?;
        let shares = boot.all_gather(&[u8::from(mine.is_some())])?;
        // A rank that got no segment is a host of its own.
        let hosts: Vec<usize> = (0..self.size)
            .map(|r| {
                if shares[r][0] == 1 {
                    groups[r]
                } else {
                    self.size + r
                }
            })
            .collect();
        let together = hosts.iter().all(|h| *h == hosts[0]);
        ensure!(
            !together || mine.is_some(),
            Communication,
            "the meeting segment did not arrive"
        );
        Ok((hosts, mine.filter(|_| together).map(Arc::new)))
    }
}
