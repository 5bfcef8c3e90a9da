use super::*;
use crate::error::Kind;
use crate::platform::Bootstrap;
use crate::platform::TransportChoice;

#[test]
fn ranks_with_working_memory_reach_each_other() {
    let (reaches, world) = on_gpus(3, |_| {}, |platform, boot| acquainted(platform, boot).unwrap());
    for reach in reaches {
        assert_eq!(reach.unreachable, None);
        assert!(!reach.shares_device);
    }
    assert_eq!(world.alive(), "");
    let (alone, world) = on_gpus(1, |_| {}, |platform, boot| acquainted(platform, boot).unwrap());
    assert!(alone[0].unreachable.is_none() && !alone[0].shares_device);
    assert_eq!(world.alive(), "");
}

#[test]
fn ranks_on_one_gpu_are_known_by_its_identity() {
    let (reaches, world) = on_gpus(
        3,
        |desk| desk.uuid = [7, 9, 7][desk.rank],
        |platform, boot| {
            let reach = acquainted(platform, boot).unwrap();
            // NCCL refuses them, so local copies are taken; forced, that is an error on all.
            platform.make_transport(TransportChoice::Auto, boot).unwrap();
            let error = platform
                .make_transport(TransportChoice::Nccl, boot)
                .err()
                .unwrap();
            assert_eq!(error.kind, Kind::NotSupported);
            assert!(platform.abort_word().is_none(), "they never wait on it");
            reach
        },
    );
    assert!(reaches.iter().all(|r| r.shares_device && r.unreachable.is_none()));
    assert_eq!(world.alive(), "");
}

#[test]
fn what_one_rank_cannot_do_no_rank_does() {
    type Harm = fn(&mut Desk);
    let cases: [(&str, Harm); 6] = [
        ("reads back wrong", |d| d.reads_garbage = true),
        ("no peer access", |d| d.can_access_peers = false),
        ("cuMemCreate", |d| {
            d.failure = Some(("cuMemCreate", 0, fake::UNKNOWN))
        }),
        ("cuMemExportToShareableHandle", |d| {
            d.failure = Some(("cuMemExportToShareableHandle", 0, fake::UNKNOWN))
        }),
        ("cuMemImportFromShareableHandle", |d| {
            d.failure = Some(("cuMemImportFromShareableHandle", 1, fake::UNKNOWN))
        }),
        ("cuMemSetAccess", |d| {
            d.failure = Some(("cuMemSetAccess", 1, fake::UNKNOWN))
        }),
    ];
    for (words, harm) in cases {
        let (reaches, world) = on_gpus(
            3,
            |desk| {
                if desk.rank == 1 {
                    harm(desk);
                }
            },
            |platform, boot| platform.acquaint(boot, &[0; 3]).unwrap(),
        );
        for reach in &reaches {
            let why = reach.unreachable.as_ref().expect(words);
            assert!(why.starts_with("rank ") && why.contains(words), "{why}");
            assert_eq!(reach, &reaches[0]);
        }
        assert_eq!(world.alive(), "");
    }
}

#[test]
fn a_lost_descriptor_is_an_error_on_all() {
    let world = Arc::new(World::default());
    let errors = ranks(2, |boot| {
        Desk::new(&world, boot.rank()).sit();
        let platform = CudaPlatform::new(Arc::new(Gpu::bind(fake::functions(), 0).unwrap()));
        let boot = boot.losing_descriptors(true);
        platform.acquaint(&boot, &[0, 0]).unwrap_err()
    });
    assert!(errors.iter().all(|e| e.kind == Kind::System));
    assert_eq!(world.alive(), "");
}

#[test]
fn the_word_of_a_broken_communicator_is_set_once_it_breaks() {
    let (_, world) = on_gpus(
        2,
        |_| {},
        |platform, boot| {
            platform.abort();
            acquainted(platform, boot).unwrap();
            let word = platform.abort_word().unwrap().0 as *const u32;
            // SAFETY: the word lives as long as the platform.
            let value = || unsafe { word.read_volatile() };
            assert_eq!(value(), 0);
            platform.abort();
            assert_eq!(value(), 1);
        },
    );
    assert_eq!(world.alive(), "");
}
