"""`python -m reservation_service` is the command `reservation-service`."""

from reservation_service.cli import main

if __name__ == "__main__":
    main()
